// Numbers, tensors and learned values: which goes where. Each message as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

std::string FormulaTypesError(absl::string_view fields) { return ErrorOf(ModelWith(fields)); }

TEST(FormulaTypeTest, ConditionsReadNumbers) {
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x)\" each: \"x = norm(x) if x\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: a condition is decided when the model "
            "is loaded; it cannot read a tensor\n"
            "  x = norm(x) if x\n"
            "                 ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x)\" each: \"x = norm(x) if x > 0\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: a condition is decided when the model "
            "is loaded; it cannot read a tensor\n"
            "  x = norm(x) if x > 0\n"
            "                   ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x)\" each: \"x = norm(x) if not x\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: \"not\" works on numbers; this is a "
            "tensor [batch, seq, 8]; conditions are decided when the model is loaded\n"
            "  x = norm(x) if not x\n"
            "                     ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x)\" each: \"x = norm(x) if layer > 1 and x\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: \"and\" works on numbers; this is a "
            "tensor [batch, seq, 8]; conditions are decided when the model is loaded\n"
            "  x = norm(x) if layer > 1 and x\n"
            "                               ^");
}

TEST(FormulaTypeTest, PowersAndRemaindersHaveNumbersOnTheRight) {
  EXPECT_EQ(FormulaTypesError("each: \"x = x ^ 2 + f(x)\""), "no error");
  EXPECT_EQ(FormulaTypesError("each: \"x = 2 ^ x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: an exponent is a number; this is a "
            "tensor [batch, seq, 8]; a ^ b is exp(b * log(a))\n"
            "  x = 2 ^ x + f(x)\n"
            "          ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x % 2 + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"%\" works on numbers; this is a "
            "tensor [batch, seq, 8]\n"
            "  x = x % 2 + f(x)\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = sqrt(x) + f(x)\""), "no error");
  EXPECT_EQ(FormulaTypesError("each: \"x = max(1, f(x)) + x\""), "no error");
  EXPECT_EQ(FormulaTypesError("each: \"x = tanh(x, 2) + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: tanh takes one argument, not 2\n"
            "  x = tanh(x, 2) + f(x)\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = sqrt(2, 3) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: sqrt takes one argument, not 2\n"
            "  x = sqrt(2, 3) * f(x)\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = tanh() * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: tanh takes one argument, not 0\n"
            "  x = tanh() * f(x)\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = tanh(x) + sigmoid(f(x)) * f_norm(x)\""), "no error");
}

TEST(FormulaTypeTest, EverythingDivides) {
  EXPECT_EQ(FormulaTypesError("each: \"x = f(x) / x\""), "no error");
  EXPECT_EQ(FormulaTypesError("each: \"x = 1 / f(x)\""), "no error");
  EXPECT_EQ(FormulaTypesError("learned { name: \"g\" init: 1 } each: \"x = f(x) / g\""),
            "no error");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x) / 2\""), "no error");
}

TEST(FormulaTypeTest, DivisionByZeroSaysAtWhichLayer) {
  EXPECT_EQ(
      FormulaTypesError("each: \"x = x + f(x) / (layer - 1)\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: division by zero at layer 1, sublayer 1\n"
      "  x = x + f(x) / (layer - 1)\n"
      "               ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x) / (layer - 2)\""),
            "m.pbtxt:4:1: placement \"p\", each, layer 2 (attention): division by zero at layer 2, "
            "sublayer 3\n"
            "  x = x + f(x) / (layer - 2)\n"
            "               ^");
  EXPECT_EQ(
      FormulaTypesError("each: \"x = x + f(x) * (1 / (sublayer - 4))\""),
      "m.pbtxt:4:1: placement \"p\", each, layer 2 (mlp): division by zero at layer 2, sublayer 4\n"
      "  x = x + f(x) * (1 / (sublayer - 4))\n"
      "                    ^");
  EXPECT_EQ(FormulaTypesError(
                "let: \"a = 1 / (layer - 2)\" block: \"x = x + a * attention(x) + mlp(x)\""),
            "m.pbtxt:4:1: division by zero at layer 2\n"
            "  a = 1 / (layer - 2)\n"
            "        ^");
  EXPECT_EQ(
      FormulaTypesError("each: \"x = x + f(x)\""
                        "inside { point: \"mlp.hidden\" rule: \"hidden = hidden / (layer - 2)\" }"),
      "m.pbtxt:4:50: placement \"p\", inside mlp.hidden: division by zero at layer 2, sublayer 4\n"
      "  hidden = hidden / (layer - 2)\n"
      "                  ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x)\" end: \"x = x / 0\""),
            "m.pbtxt:4:22: placement \"p\", end: division by zero\n"
            "  x = x / 0\n"
            "        ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + sqrt(1 - layer) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, layer 2 (attention): \"sqrt(1 - layer)\" is not a "
            "real number at layer 2, sublayer 3\n"
            "  x = x + sqrt(1 - layer) * f(x)\n"
            "          ^");
}

TEST(FormulaTypeTest, CoefficientsFitTheTensors) {
  EXPECT_EQ(FormulaTypesError("each: \"x = x + 1e30 * (1e30 * f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at "
            "layer 1, sublayer 1\n"
            "  x = x + 1e30 * (1e30 * f(x))\n"
            "               ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x) / 1e-30 / 1e-30\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at "
            "layer 1, sublayer 1\n"
            "  x = x + f(x) / 1e-30 / 1e-30\n"
            "                       ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x) + 1e300\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at "
            "layer 1, sublayer 1\n"
            "  x = x + f(x) + 1e300\n"
            "               ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + 1e30 * f(x)\""), "no error");
}

TEST(FormulaTypeTest, SublayersAndNormsTakeOneTensor) {
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f()\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: f takes one tensor, or those of its "
            "queries, keys and values, not 0 arguments\n"
            "  x = x + f()\n"
            "          ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(x, x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: f takes one tensor, or those of its "
            "queries, keys and values, not 2 arguments\n"
            "  x = x + f(x, x)\n"
            "          ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(2)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: f takes a tensor; this is a number\n"
            "  x = x + f(2)\n"
            "            ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(norm(n_layer))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: norm takes a tensor; this is a number\n"
            "  x = x + f(norm(n_layer))\n"
            "                 ^");
  EXPECT_EQ(FormulaTypesError("each: \"x = x + f(norm(x, 2))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: norm takes a tensor; this is a number\n"
            "  x = x + f(norm(x, 2))\n"
            "                    ^");
  EXPECT_EQ(
      FormulaTypesError("learned { name: \"g\" per_channel: true } each: \"x = x + f(norm(g))\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: norm takes a tensor; this is learned [8]\n"
      "  x = x + f(norm(g))\n"
      "                 ^");
}

TEST(FormulaTypeTest, TensorsAndLearnedValuesAreNotCalled) {
  EXPECT_EQ(
      FormulaTypesError("each: \"h = norm(x)\" each: \"x = x + f(h(x))\""),
      "m.pbtxt:4:21: placement \"p\", each, attention: \"h\" is a tensor; it cannot be called\n"
      "  x = x + f(h(x))\n"
      "            ^");
  EXPECT_EQ(
      FormulaTypesError("each: \"x = x + f(x(norm))\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: \"x\" is a tensor; it cannot be called\n"
      "  x = x + f(x(norm))\n"
      "            ^");
  EXPECT_EQ(FormulaTypesError("learned { name: \"gate\" } each: \"x = x + gate(f(x))\""),
            "m.pbtxt:4:26: placement \"p\", each, attention: \"gate\" is a learned value; multiply "
            "with it: gate * (...)\n"
            "  x = x + gate(f(x))\n"
            "          ^");
}

TEST(FormulaTypeTest, LearnedValuesMultiplyAndAdd) {
  EXPECT_EQ(
      FormulaTypesError("learned { name: \"g\" per_channel: true } each: \"x = x + g + f(x)\""),
      "no error");
  EXPECT_EQ(FormulaTypesError("learned { name: \"g\" } each: \"x = f(x) - g\""), "no error");
  EXPECT_EQ(FormulaTypesError(
                "learned { name: \"g\" } each: \"x = f(x) * (1 - sigmoid(g)) + 2 * g * x\""),
            "no error");
  EXPECT_EQ(FormulaTypesError("learned { name: \"g\" per_channel: true } learned { name: \"s\" }"
                              "each: \"x = x + s * g * f(x)\""),
            "no error");
}

TEST(FormulaTypeTest, WidthsAgree) {
  // q is [.., n_head * head_dim]: 8 there, and 4 for the one head of k.
  const auto inside = [](absl::string_view point, absl::string_view rule) {
    return ErrorOf(absl::StrCat(kDims, "n_kv_head: 1\n",
                                "placement {\n  name: \"p\"\n"
                                "  learned { name: \"h\" init: 1 per_head: true }\n"
                                "  learned { name: \"c\" init: 1 per_channel: true }\n"
                                "  each: \"x = x + f(x)\" begin: \"x = h * c * x if n_layer < 0\"\n"
                                "  inside { point: \"",
                                point, "\" rule: \"", rule,
                                "\" }\n}\nblock { placement: \"p\" norm: \"rms_norm\" }\n"));
  };
  EXPECT_EQ(inside("attention.q", "q = h * q"), "no error");
  EXPECT_EQ(inside("attention.k", "k = c * k"), "no error");
  EXPECT_EQ(inside("mlp.hidden", "hidden = c * hidden"), "no error");
  EXPECT_EQ(inside("attention.q", "q = h"),
            "m.pbtxt:8:33: placement \"p\", inside attention.q: \"q\" carries a tensor [batch, "
            "seq, 8]; this is learned [2]\n"
            "  q = h\n"
            "      ^");
  EXPECT_EQ(inside("mlp.hidden", "hidden = h * hidden"),
            "m.pbtxt:8:32: placement \"p\", inside mlp.hidden: \"h\" is learned per head; there "
            "are heads only inside attention\n"
            "  hidden = h * hidden\n"
            "           ^");
  EXPECT_EQ(inside("attention.q", "q = h * c"),
            "m.pbtxt:8:33: placement \"p\", inside attention.q: \"q\" carries a tensor [batch, "
            "seq, 8]; this is learned [8]\n"
            "  q = h * c\n"
            "        ^");
  EXPECT_EQ(inside("attention.q", "q = 3"),
            "m.pbtxt:8:33: placement \"p\", inside attention.q: \"q\" carries a tensor [batch, "
            "seq, 8]; this is a number\n"
            "  q = 3\n"
            "      ^");
}

TEST(FormulaTypeTest, ALearnedValueHasOneSizeInOnePlace) {
  EXPECT_EQ(FormulaTypesError(
                "learned { name: \"g\" init: 1 per_channel: true } each: \"x = x + g * f(x)\""
                "inside { point: \"mlp.hidden\" rule: \"hidden = g * hidden\" }"),
            "m.pbtxt:4:102: placement \"p\", inside mlp.hidden: \"g\" has 8 elements elsewhere in "
            "this sublayer and would have 16 here; use two names\n"
            "  hidden = g * hidden\n"
            "           ^");
}

TEST(FormulaTypeTest, StreamsCarryTensors) {
  EXPECT_EQ(FormulaTypesError("begin: \"d = 2\" each: \"x = x + f(x)\" end: \"x = x + d\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"d\" carries a tensor [batch, seq, 8]; this is "
            "a number\n"
            "  d = 2\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError("each: \"y = f(x)\" each: \"x = n_layer\""),
            "m.pbtxt:4:18: placement \"p\", each, attention: \"x\" carries a tensor [batch, seq, "
            "8]; this is a number\n"
            "  x = n_layer\n"
            "      ^");
  EXPECT_EQ(FormulaTypesError(
                "learned { name: \"g\" per_channel: true } each: \"y = f(x)\" each: \"x = g\""),
            "m.pbtxt:4:58: placement \"p\", each, attention: \"x\" carries a tensor [batch, seq, "
            "8]; this is learned [8]\n"
            "  x = g\n"
            "      ^");
  EXPECT_EQ(
      FormulaTypesError("learned { name: \"g\" } begin: \"x = 2 * g\" each: \"x = x + f(x)\""),
      "m.pbtxt:4:23: placement \"p\", begin: \"x\" carries a tensor [batch, seq, 8]; this is "
      "a learned scalar\n"
      "  x = 2 * g\n"
      "        ^");
}

TEST(FormulaTypeTest, LocalsHoldNumbersAndLearnedValuesToo) {
  EXPECT_EQ(FormulaTypesError(
                "learned { name: \"g\" } each: \"s = 2 / layer\" each: \"t = s * sigmoid(g)\""
                "each: \"x = x + t * f(x)\""),
            "no error");
}

}  // namespace
}  // namespace plumb
