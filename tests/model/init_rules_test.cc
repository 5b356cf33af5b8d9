// SPDX-License-Identifier: Apache-2.0
// Tests of initial weights: PyTorch's defaults, the rules of a model and of a placement, and the
// drawn values.
#include "runtime/model/init_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MatchesPatternTest, StarsMatchAnyCharacters) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*", "head.weight"));
  EXPECT_TRUE(MatchesPattern("*.o.weight", "layers.0.attention.o.weight"));
  EXPECT_TRUE(MatchesPattern("layers.*.weight", "layers.0.mlp.up.weight"));
  EXPECT_TRUE(MatchesPattern("*a*b*", "xaxxbabx"));
  EXPECT_TRUE(MatchesPattern("*ab", "aab"));
  EXPECT_TRUE(MatchesPattern("head.weight", "head.weight"));
  EXPECT_FALSE(MatchesPattern("head.weight", "head.weights"));
  EXPECT_FALSE(MatchesPattern("*.o.weight", "layers.0.attention.o.weight_"));
  EXPECT_FALSE(MatchesPattern("a*b", "a"));
  EXPECT_FALSE(MatchesPattern("", "a"));
  // The time of matching is not exponential.
  EXPECT_FALSE(MatchesPattern("*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

class InitRulesTest : public ::testing::Test {
 protected:
  // Returns the distribution of a parameter, such as "uniform(-0.5, 0.5)".
  std::string GetInit(const std::string& text, const std::string& name) {
    const auto context = MakeContext(runtime_.get(), text);
    for (const ParameterSpec& parameter : context->parameters) {
      if (parameter.name == name) return parameter.init.ToString();
    }
    return absl::StrCat("no parameter ", name);
  }
  std::string GetInit(const TinyModel& model, const std::string& name) {
    return GetInit(model.Text(), name);
  }
  absl::Status GetError(const TinyModel& model) {
    return TryContext(runtime_.get(), model.Text()).status();
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  TinyModel model_;
};

TEST_F(InitRulesTest, DefaultsFollowPyTorch) {
  model_.d_model = 16;
  model_.d_ff = 100;
  model_.more = "attention { bias: true } mlp { bias: true } head_bias: true";
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), "normal(0, 1)");
  EXPECT_EQ(GetInit(model_, "embedding.position.weight"), "normal(0, 1)");
  EXPECT_EQ(GetInit(model_, "layers.0.attention.q.weight"), "uniform(-0.25, 0.25)");
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.up.bias"), "uniform(-0.25, 0.25)");
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.down.weight"), "uniform(-0.1, 0.1)");
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.down.bias"), "uniform(-0.1, 0.1)");
  EXPECT_EQ(GetInit(model_, "head.weight"), "uniform(-0.25, 0.25)");
  EXPECT_EQ(GetInit(model_, "head.bias"), "uniform(-0.25, 0.25)");
}

TEST_F(InitRulesTest, TiedEmbeddingsAreSmaller) {
  model_.d_model = 64;
  model_.vocab_size = 65;
  model_.more = "tie_embeddings: true";
  const std::string small = absl::StrCat("normal(0, ", std::log(65.0) / 128, ")");
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), small);
  EXPECT_EQ(GetInit(model_, "embedding.position.weight"), small);
  EXPECT_EQ(GetInit(model_, "layers.0.attention.q.weight"), "uniform(-0.125, 0.125)");
  // These distributions equal those of a head alone, in a narrow model and with norms that keep the
  // length of a row.
  model_.norm = "dyt";
  const std::string of_head = absl::StrCat("normal(0, ", 1 / std::sqrt(3 * 64.0), ")");
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), of_head);
  model_.norm = "rms_norm";
  model_.vocab_size = 1 << 20;
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), of_head);
  model_.more += " init { match: \"embedding.*\" normal { std: \"0.5\" } }";
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), "normal(0, 0.5)");
}

TEST_F(InitRulesTest, ConvolutionsFollowPyTorchAndSinksAreZero) {
  const std::string text = R"pbtxt(
    n_layer: 1 n_head: 2 d_model: 8 vocab_size: 5 context_length: 8 attention { sinks: true }
    block { placement: "pre" norm: "rms_norm"
            sublayer { attention {} } sublayer { conv { bias: true } } })pbtxt";
  const auto of = [&](const std::string& name, const std::string& more) {
    const auto context = TryContext(runtime_.get(), text + more);
    if (!context.ok()) return context.status().ToString();
    for (const ParameterSpec& parameter : (*context)->parameters) {
      if (parameter.name == name) return parameter.init.ToString();
    }
    return std::string("missing");
  };
  EXPECT_EQ(of("layers.0.attention.sink", ""), "constant(0)");
  EXPECT_EQ(of("layers.0.conv.weight", ""), "uniform(-0.5, 0.5)");
  EXPECT_EQ(of("layers.0.conv.bias", ""), "uniform(-0.5, 0.5)");
  EXPECT_EQ(of("layers.0.attention.sink", "init { match: \"*.sink\" normal { std: \"2\" } }"),
            "normal(0, 2)");
  EXPECT_EQ(of("layers.0.conv.weight", "init { match: \"*.conv.weight\" xavier_normal {} }"),
            absl::StrCat("normal(0, ", std::sqrt(2.0 / (4 + 32)), ")"));
}

TEST_F(InitRulesTest, DistributionsHaveTheirParameters) {
  // The shapes are [12, 8] for up (fan_in 8, fan_out 12) and [5, 8] for embedding.token.
  const auto of = [&](const std::string& distribution) {
    model_.more = absl::StrCat("init { match: \"*.mlp.up.weight\" ", distribution, " }");
    return GetInit(model_, "layers.0.mlp.up.weight");
  };
  EXPECT_EQ(of("normal { mean: \"1\" std: \"0.5\" }"), "normal(1, 0.5)");
  EXPECT_EQ(of("normal {}"), "normal(0, 1)");
  EXPECT_EQ(of("uniform { low: \"-2\" high: \"3\" }"), "uniform(-2, 3)");
  EXPECT_EQ(of("constant { value: \"1 / 4\" }"), "constant(0.25)");
  EXPECT_EQ(of("constant {}"), "constant(0)");
  EXPECT_EQ(of("xavier_normal { gain: \"2\" }"),
            absl::StrCat("normal(0, ", 2 * std::sqrt(0.1), ")"));
  const double bound = std::sqrt(6.0 / 20);
  EXPECT_EQ(of("xavier_uniform {}"), absl::StrCat("uniform(", -bound, ", ", bound, ")"));
  EXPECT_EQ(of("kaiming_uniform { a: \"1\" }"),
            absl::StrCat("uniform(", -std::sqrt(3.0 / 8), ", ", std::sqrt(3.0 / 8), ")"));
  // The default a = sqrt(5) is PyTorch's for linear layers: 1 / sqrt(fan_in).
  EXPECT_EQ(of("kaiming_uniform {}"),
            absl::StrCat("uniform(", -1 / std::sqrt(8.0), ", ", 1 / std::sqrt(8.0), ")"));
}

TEST_F(InitRulesTest, Gpt2ScalesItsResidualProjections) {
  model_.n_layer = 8;
  model_.more = R"pbtxt(
    init { match: "*" normal { std: "0.02" } }
    init { match: "*.attention.o.weight" scale: "1 / sqrt(2 * n_layer)" }
    init { match: "*.mlp.down.weight" scale: "1 / sqrt(2 * n_layer)" })pbtxt";
  EXPECT_EQ(GetInit(model_, "embedding.token.weight"), "normal(0, 0.02)");
  EXPECT_EQ(GetInit(model_, "layers.7.attention.o.weight"), "normal(0, 0.005)");
  EXPECT_EQ(GetInit(model_, "layers.0.mlp.down.weight"), "normal(0, 0.005)");
  EXPECT_EQ(GetInit(model_, "layers.0.mlp.up.weight"), "normal(0, 0.02)");
  EXPECT_EQ(GetInit(model_, "end.norm.weight"), "constant(1)");
}

TEST_F(InitRulesTest, LaterDistributionsOverrideAndScalesMultiply) {
  model_.more = R"pbtxt(
    init { match: "*" constant { value: "3" } scale: "2" }
    init { match: "layers.*" constant { value: "5" } scale: "1 / layer" }
    init { match: "*.up.weight" scale: "sublayer" })pbtxt";
  EXPECT_EQ(GetInit(model_, "head.weight"), "constant(6)");
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.down.weight"), "constant(5)");
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.up.weight"), "constant(20)");
}

TEST_F(InitRulesTest, DeepNormsBetaIsOnValuesOutputsAndMlpOnly) {
  model_.placement = "deepnorm";
  model_.n_layer = 2;  // beta = (8 * 2) ^ -0.25 = 0.5
  model_.d_model = 16;
  model_.d_ff = 16;
  model_.more = "attention { bias: true } mlp { gated: true bias: true }";
  for (const char* name : {"attention.v", "attention.o", "mlp.gate", "mlp.up", "mlp.down"}) {
    EXPECT_EQ(GetInit(model_, absl::StrCat("layers.1.", name, ".weight")), "uniform(-0.125, 0.125)")
        << name;
  }
  for (const char* name : {"layers.1.attention.q.weight", "layers.1.attention.k.weight",
                           "layers.1.attention.v.bias", "layers.1.mlp.up.bias", "head.weight"}) {
    EXPECT_EQ(GetInit(model_, name), "uniform(-0.25, 0.25)") << name;
  }
  // The factor applies to the model's distribution, as in the paper.
  model_.more = "init { match: \"layers.*.weight\" xavier_normal {} }";
  EXPECT_EQ(GetInit(model_, "layers.0.attention.q.weight"), "normal(0, 0.25)");
  EXPECT_EQ(GetInit(model_, "layers.0.attention.v.weight"), "normal(0, 0.125)");
}

TEST_F(InitRulesTest, PlacementRulesApplyToItsLayers) {
  const std::string text = R"pbtxt(
    n_head: 2 d_model: 16 d_ff: "16" vocab_size: 5 context_length: 8
    placement { name: "zero" each: "x = x + f(x)" init { match: "*.o.weight" constant {} } }
    layers { repeat: 1 block { placement: "zero" } }
    layers { repeat: 1 block { placement: "none" } })pbtxt";
  EXPECT_EQ(GetInit(text, "layers.0.attention.o.weight"), "constant(0)");
  EXPECT_EQ(GetInit(text, "layers.1.attention.o.weight"), "uniform(-0.25, 0.25)");
}

TEST_F(InitRulesTest, APatternThatMatchesNothingIsAnError) {
  model_.more = "init { match: \"*.attn.o.weight\" scale: \"2\" }";
  EXPECT_EQ(GetError(model_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(GetError(model_).message()),
      AllOf(HasSubstr("test.pbtxt:"), HasSubstr("*.attn.o.weight"), HasSubstr("matches no")));
  model_.placement = "mine";
  model_.more = R"pbtxt(placement { name: "mine" each: "x = x + f(x)"
                               init { match: "*.mpl.*" scale: "2" } })pbtxt";
  EXPECT_THAT(std::string(GetError(model_).message()), HasSubstr("*.mpl.*"));
}

// Trinity and Pangu start with small gains of norms.
TEST_F(InitRulesTest, RulesMatchNormsAndLearnedValues) {
  model_.placement = "mine";
  model_.norm = "layer_norm";
  model_.more = R"pbtxt(
    placement {
      name: "mine"
      learned { name: "gate" init: 0.5 }
      each: "x = x + gate * norm_out(f(norm(x)))"
      end: "x = norm(x)"
    }
    init { match: "*.norm_out.weight" constant { value: "1 / sqrt(n_layer)" } }
    init { match: "*.mlp.norm.weight" normal { mean: "layer" std: "0.1" } scale: "2" }
    init { match: "*.gate" scale: "0.5" }
    init { match: "layers.*" normal { std: "0.5" } })pbtxt";
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.norm_out.weight"),
            absl::StrCat("constant(", 1 / std::sqrt(2.0), ")"));
  EXPECT_EQ(GetInit(model_, "layers.1.mlp.norm.weight"), "normal(4, 0.2)");
  EXPECT_EQ(GetInit(model_, "layers.0.attention.gate"), "constant(0.25)");
  // A pattern that also matches weights applies only to weights.
  EXPECT_EQ(GetInit(model_, "layers.0.attention.norm.weight"), "constant(1)");
  EXPECT_EQ(GetInit(model_, "layers.0.attention.q.weight"), "normal(0, 0.5)");
  model_.more += " init { match: '*.norm_out.*' xavier_normal {} }";
  EXPECT_THAT(std::string(GetError(model_).message()), HasSubstr("has no fans"));
}

TEST_F(InitRulesTest, TruncatedNormalHasItsCut) {
  model_.more = R"pbtxt(
    init { match: "*.q.weight" truncated_normal { mean: "1" std: "0.02" cut: "3" } scale: "2" }
    init { match: "*.k.weight" truncated_normal { std: "1 / sqrt(d_model)" } })pbtxt";
  EXPECT_EQ(GetInit(model_, "layers.0.attention.q.weight"), "truncated_normal(2, 0.04, cut 3)");
  EXPECT_THAT(GetInit(model_, "layers.0.attention.k.weight"), HasSubstr(", cut 2)"));
}

TEST_F(InitRulesTest, InvalidDistributionsAreErrors) {
  const std::pair<const char*, const char*> errors[] = {
      {"init { match: \"*\" normal { std: \"-1\" } }", "std is negative"},
      {"init { match: \"*\" truncated_normal { std: \"-1\" } }", "std is negative"},
      {"init { match: \"*\" truncated_normal { cut: \"0.5\" } }", "cut must be at least 1"},
      {"init { match: \"*\" uniform { low: \"2\" high: \"1\" } }", "low must be at most high"},
      {"init { match: \"*\" scale: \"1 / (n_head - n_head)\" }", "zero"},
      {"init { match: \"head.weight\" scale: \"1 / layer\" }", "layer"},
      {"init { match: \"*\" normal { std: \"stdd\" } }", "stdd"},
  };
  for (const auto& [rule, said] : errors) {
    model_.more = rule;
    EXPECT_EQ(GetError(model_).code(), absl::StatusCode::kInvalidArgument) << rule;
    EXPECT_THAT(std::string(GetError(model_).message()), HasSubstr(said)) << rule;
  }
}

// Moments of 40,000 drawn values. The tolerance is five standard errors.
struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments Draw(InitSpec init) {
  ParameterSpec parameter;
  parameter.name = "layers.0.mlp.up.weight";
  parameter.shape = Shape({200, 200});
  parameter.init = init;
  std::vector<float> values(40000);
  EXPECT_TRUE(DrawInitialValues(parameter, 3, /*threads=*/1, values.data()).ok());
  Moments m;
  for (float v : values) m.mean += static_cast<double>(v) / 40000;
  for (float v : values) m.deviation += std::pow(static_cast<double>(v) - m.mean, 2) / 40000;
  m.deviation = std::sqrt(m.deviation);
  m.low = static_cast<double>(*std::min_element(values.begin(), values.end()));
  m.high = static_cast<double>(*std::max_element(values.begin(), values.end()));
  return m;
}

TEST(DrawInitialValuesTest, NormalValuesHaveTheirMeanAndDeviation) {
  const Moments m = Draw({InitSpec::Kind::kNormal, 0.5, 2});
  EXPECT_NEAR(m.mean, 0.5, 5 * 2 / 200.0);
  EXPECT_NEAR(m.deviation, 2, 5 * 2 / std::sqrt(80000.0));
  EXPECT_LT(m.low, 0.5 - 3 * 2);
  EXPECT_GT(m.high, 0.5 + 3 * 2);
}

TEST(DrawInitialValuesTest, TruncatedNormalValuesStayInTheirCut) {
  const Moments m = Draw({InitSpec::Kind::kTruncatedNormal, 0.5, 2, {}, 1.5});
  // The standard deviation of a normal that is cut at +-c is sqrt(1 - 2 c phi(c) / (2 Phi(c) - 1)).
  const double phi = std::exp(-1.5 * 1.5 / 2) / std::sqrt(2 * 3.14159265358979323846);
  const double deviation = 2 * std::sqrt(1 - 2 * 1.5 * phi / std::erf(1.5 / std::sqrt(2.0)));
  EXPECT_NEAR(m.mean, 0.5, 5 * deviation / 200);
  EXPECT_NEAR(m.deviation, deviation, 0.02);
  EXPECT_GE(m.low, 0.5 - 3);
  EXPECT_LT(m.low, 0.5 - 2.99);
  EXPECT_LE(m.high, 0.5 + 3);
  EXPECT_GT(m.high, 0.5 + 2.99);
}

TEST(DrawInitialValuesTest, UniformValuesFillTheirInterval) {
  const Moments m = Draw({InitSpec::Kind::kUniform, -0.25, 0.75});
  EXPECT_NEAR(m.mean, 0.25, 5 / std::sqrt(12.0) / 200);
  EXPECT_NEAR(m.deviation, 1 / std::sqrt(12.0), 0.005);
  EXPECT_GE(m.low, -0.25);
  EXPECT_LT(m.low, -0.25 + 0.001);
  EXPECT_LE(m.high, 0.75);
  EXPECT_GT(m.high, 0.75 - 0.001);
}

TEST(DrawInitialValuesTest, ValuesDoNotDependOnTheNumberOfThreads) {
  ParameterSpec parameter;
  parameter.name = "w";
  parameter.shape = Shape({123, 457});
  parameter.init = {InitSpec::Kind::kNormal, 0, 1};
  std::vector<float> one(123 * 457), four(one.size());
  EXPECT_TRUE(DrawInitialValues(parameter, 9, /*threads=*/1, one.data()).ok());
  EXPECT_TRUE(DrawInitialValues(parameter, 9, /*threads=*/4, four.data()).ok());
  EXPECT_EQ(one, four);
}

TEST(DrawInitialValuesTest, ConstantValuesAreAllTheSame) {
  const Moments m = Draw({InitSpec::Kind::kConstant, 0.125, 0});
  EXPECT_EQ(m.low, 0.125);
  EXPECT_EQ(m.high, 0.125);
}

// Paired comparisons need the same initial values of shared weights in both placements.
TEST_F(InitRulesTest, SharedWeightsDrawTheSameValuesUnderEveryPlacement) {
  const auto draw = [&](const std::string& placement, uint64_t seed) {
    TinyModel model;
    model.placement = placement;
    const auto context = MakeContext(runtime_.get(), model.Text());
    std::map<std::string, std::vector<float>> values;
    for (const ParameterSpec& parameter : context->parameters) {
      if (parameter.role != ParameterSpec::Role::kWeight) continue;
      std::vector<float>& drawn = values[parameter.name];
      drawn.resize(static_cast<size_t>(parameter.shape.num_elements()));
      EXPECT_TRUE(DrawInitialValues(parameter, seed, /*threads=*/1, drawn.data()).ok());
    }
    return values;
  };
  const auto none = draw("none", 11);
  EXPECT_EQ(none.size(), 3 + 2 * 6u);
  EXPECT_EQ(draw("pre", 11), none);
  EXPECT_EQ(draw("post", 11), none);
  EXPECT_NE(draw("pre", 12), none);
  // Different weights have different values.
  EXPECT_NE(none.at("layers.0.attention.q.weight"), none.at("layers.0.attention.k.weight"));
  EXPECT_NE(none.at("layers.0.attention.q.weight"), none.at("layers.1.attention.q.weight"));
}

}  // namespace
}  // namespace plumb
