// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

class ScalarTest : public ::testing::Test {
 protected:
  ScalarTest() {
    dims_.n_layer = 12;
    dims_.n_sublayer = 24;
    dims_.n_head = 4;
    dims_.n_kv_head = 2;
    dims_.d_model = 64;
    dims_.d_ff = 256;
    dims_.head_dim = 16;
    dims_.vocab_size = 27;
    dims_.context_length = 32;
    scope_.dims = &dims_;
    scope_.placement = &placement_;
  }

  void Let(const std::string& text) {
    absl::StatusOr<Statement> let = ParseStatement({text, {"p.pbtxt", 2, 3}}, "let");
    ASSERT_TRUE(let.ok()) << let.status();
    placement_.lets.push_back(*std::move(let));
  }
  absl::StatusOr<double> Evaluate(const std::string& text) const {
    const absl::StatusOr<Expression> expression = ParseExpression({text, {"p.pbtxt", 7, 5}});
    EXPECT_TRUE(expression.ok()) << expression.status();
    return EvaluateScalar(*expression, scope_);
  }
  double Value(const std::string& text) const {
    const absl::StatusOr<double> value = Evaluate(text);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.value_or(std::nan(""));
  }
  std::string Error(const std::string& text) const {
    const absl::StatusOr<double> value = Evaluate(text);
    if (value.ok()) return absl::StrCat("no error: ", *value);
    return std::string(value.status().message());
  }

  ModelDims dims_;
  PlacementSpec placement_;
  ScalarScope scope_;
};

TEST_F(ScalarTest, KnowsTheDimensions) {
  EXPECT_EQ(Value("n_layer"), 12);
  EXPECT_EQ(Value("n_sublayer"), 24);
  EXPECT_EQ(Value("n_head"), 4);
  EXPECT_EQ(Value("n_kv_head"), 2);
  EXPECT_EQ(Value("d_model"), 64);
  EXPECT_EQ(Value("d_ff"), 256);
  EXPECT_EQ(Value("head_dim"), 16);
  EXPECT_EQ(Value("vocab_size"), 27);
  EXPECT_EQ(Value("context_length"), 32);
}

TEST_F(ScalarTest, ComputesWithOperators) {
  EXPECT_EQ(Value("7 + 2"), 9);
  EXPECT_EQ(Value("7 - 2"), 5);
  EXPECT_EQ(Value("7 * 2"), 14);
  EXPECT_EQ(Value("7 / 2"), 3.5);
  EXPECT_EQ(Value("7 ^ 2"), 49);
  EXPECT_EQ(Value("-7 ^ 2"), -49);
  EXPECT_EQ(Value("2 ^ -1"), 0.5);
  EXPECT_EQ(Value("(2 * n_layer) ^ 0.25"), std::pow(24, 0.25));
}

TEST_F(ScalarTest, TheRemainderHasTheSignOfTheDivisor) {
  EXPECT_EQ(Value("7 % 3"), 1);
  EXPECT_EQ(Value("-7 % 3"), 2);
  EXPECT_EQ(Value("7 % -3"), -2);
  EXPECT_EQ(Value("7.5 % 2"), 1.5);
}

TEST_F(ScalarTest, ComparisonsAndConditionsAreOneOrZero) {
  EXPECT_EQ(Value("2 == 2"), 1);
  EXPECT_EQ(Value("2 != 2"), 0);
  EXPECT_EQ(Value("1 < 2"), 1);
  EXPECT_EQ(Value("2 <= 2"), 1);
  EXPECT_EQ(Value("2 > 2"), 0);
  EXPECT_EQ(Value("2 >= 3"), 0);
  EXPECT_EQ(Value("1 < 2 and 2 < 1"), 0);
  EXPECT_EQ(Value("1 < 2 or 2 < 1"), 1);
  EXPECT_EQ(Value("not 0"), 1);
  EXPECT_EQ(Value("not 5"), 0);
  EXPECT_EQ(Value("3 and 4"), 1);
}

TEST_F(ScalarTest, ComputesWithFunctions) {
  EXPECT_EQ(Value("sqrt(n_head)"), 2);
  EXPECT_EQ(Value("exp(0)"), 1);
  EXPECT_EQ(Value("log(exp(1))"), 1);
  EXPECT_EQ(Value("min(3, 1, 2)"), 1);
  EXPECT_EQ(Value("max(3, 1, 2)"), 3);
  EXPECT_EQ(Value("max(3)"), 3);
  EXPECT_EQ(Value("tanh(0.5)"), std::tanh(0.5));
  EXPECT_EQ(Value("sigmoid(0)"), 0.5);
  EXPECT_EQ(Value("relu(-3) + relu(2)"), 2);
  EXPECT_EQ(Value("silu(2)"), 2 / (1 + std::exp(-2.0)));
  EXPECT_NEAR(Value("gelu(-1)"), -0.15865525393145705, 1e-15);
  EXPECT_NEAR(Value("gelu_tanh(-1)"), -0.15880800939172324, 1e-15);
  EXPECT_EQ(Value("softplus(0)"), std::log(2.0));
  EXPECT_EQ(Value("softplus(1000)"), 1000);
  EXPECT_EQ(Value("softplus(-100)"), std::exp(-100.0));
}

TEST_F(ScalarTest, EveryListedFunctionCanBeCalled) {
  for (const std::string& name : FunctionNames()) {
    EXPECT_TRUE(IsFunction(name));
    EXPECT_EQ(Evaluate(absl::StrCat(name, "(1)")).ok(), IsScalarFunction(name)) << name;
  }
  EXPECT_FALSE(IsFunction("norm"));
  EXPECT_EQ(Error("1 + dot(n_head)"),
            "p.pbtxt:7:5: dot is for statements; a number is needed here\n"
            "  1 + dot(n_head)\n"
            "      ^");
}

TEST_F(ScalarTest, LetsSeeEarlierLets) {
  Let("a = n_head / 2");
  Let("b = a + 1");
  EXPECT_EQ(Value("a * b"), 6);
  Let("d = e");
  Let("e = 1");
  EXPECT_EQ(Value("e"), 1);
  EXPECT_EQ(Error("1 + d"),
            "p.pbtxt:2:3: unknown scalar \"e\"; a let sees only the ones before it\n"
            "  d = e\n"
            "      ^");
}

TEST_F(ScalarTest, ALetCannotReadItself) {
  Let("alpha = alpha + 1");
  EXPECT_EQ(Error("alpha"),
            "p.pbtxt:2:3: unknown scalar \"alpha\"; a let sees only the ones before it\n"
            "  alpha = alpha + 1\n"
            "          ^");
}

TEST_F(ScalarTest, LayerAndSublayerAreDefinedInside) {
  EXPECT_EQ(Error("sqrt(layer)"),
            "p.pbtxt:7:5: unknown scalar \"layer\"; it has a value only in \"each\", in \"block\" "
            "and inside sublayers\n"
            "  sqrt(layer)\n"
            "       ^");
  EXPECT_EQ(Error("sublayer"),
            "p.pbtxt:7:5: unknown scalar \"sublayer\"; it has a value only in \"each\" and inside "
            "sublayers\n"
            "  sublayer\n"
            "  ^");
  scope_.layer = 3;
  EXPECT_EQ(Value("layer"), 3);
  EXPECT_EQ(Error("sublayer"),
            "p.pbtxt:7:5: unknown scalar \"sublayer\"; it has a value only in \"each\" and inside "
            "sublayers\n"
            "  sublayer\n"
            "  ^");
  scope_.sublayer = 6;
  EXPECT_EQ(Value("sublayer"), 6);
  EXPECT_EQ(Error("1 / (layer - 3)"),
            "p.pbtxt:7:5: division by zero at layer 3, sublayer 6\n"
            "  1 / (layer - 3)\n"
            "    ^");
}

TEST_F(ScalarTest, LayerDependentLetsFailOnUse) {
  Let("depth = layer / n_layer");
  Let("other = 2");
  Let("both = depth + other");
  EXPECT_EQ(Value("other"), 2);
  EXPECT_EQ(Error("both"),
            "p.pbtxt:2:3: unknown scalar \"layer\"; it has a value only in \"each\", in \"block\" "
            "and inside sublayers\n"
            "  depth = layer / n_layer\n"
            "          ^");
  scope_.layer = 6;
  EXPECT_EQ(Value("both"), 2.5);
}

TEST_F(ScalarTest, WithoutAPlacementThereAreNoLets) {
  Let("a = 1");
  scope_.placement = nullptr;
  EXPECT_FALSE(Evaluate("a").ok());
  EXPECT_EQ(Value("n_layer"), 12);
}

TEST_F(ScalarTest, DoublingLetsAreEvaluatedOnce) {
  // If names were substituted instead of evaluated once, the last of these would take 2^60 steps.
  Let("a0 = 1");
  for (int i = 1; i <= 60; ++i) Let(absl::StrCat("a", i, " = a", i - 1, " + a", i - 1));
  EXPECT_EQ(Value("a60"), std::pow(2, 60));
}

TEST_F(ScalarTest, SuggestsNamesWithAValue) {
  Let("alpha = 1");
  const auto has = [this](const std::string& name) {
    for (const std::string& n : scope_.Names()) {
      if (n == name) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("alpha"));
  EXPECT_TRUE(has("d_model"));
  EXPECT_FALSE(has("layer"));
  scope_.layer = 1;
  EXPECT_TRUE(has("layer"));
  for (const std::string& name : scope_.Names()) {
    EXPECT_EQ(IsBuiltInScalar(name), name != "alpha") << name;
  }
}

}  // namespace
}  // namespace plumb
