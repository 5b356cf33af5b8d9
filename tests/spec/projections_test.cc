// Projections: every way to misuse them, each message as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(ProjectionErrorTest, TheWidthIsANumberOfChannels) {
  EXPECT_EQ(
      PlacementError("linear { name: \"g\" out: \"0\" } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:20: linear \"g\": out is 0 at layer 1, sublayer 1; it is a number of channels\n"
      "  0\n"
      "  ^");
  EXPECT_EQ(
      PlacementError("linear { name: \"g\" out: \"1.5\" } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:20: linear \"g\": out is 1.5 at layer 1, sublayer 1; it is a number of channels\n"
      "  1.5\n"
      "  ^");
  EXPECT_EQ(
      PlacementError("linear { name: \"g\" out: \"-1\" } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:20: linear \"g\": out is -1 at layer 1, sublayer 1; it is a number of channels\n"
      "  -1\n"
      "  ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"1e12\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:20: linear \"g\": out is 1e+12 at layer 1, sublayer 1; it is a number of "
            "channels\n"
            "  1e12\n"
            "  ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"x\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:20: \"x\" is a tensor; a number is needed here\n"
            "  x\n"
            "  ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"step\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:20: unknown scalar \"step\"; it changes while a model is trained: "
            "statements may read it, but not what is decided when the model is loaded\n"
            "  step\n"
            "  ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"\" } each: \"x = x + g(x) * f(x)\""),
            "no error");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"n_heads\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:20: unknown scalar \"n_heads\"; did you mean \"n_head\"?\n"
            "  n_heads\n"
            "  ^");
  EXPECT_EQ(
      PlacementError(
          "linear { name: \"g\" out: \"layer\" } end: \"x = x + g(x)\" each: \"x = x + f(x)\""),
      "m.pbtxt:4:20: unknown scalar \"layer\"; it has a value only in \"each\", in \"block\" and "
      "inside sublayers\n"
      "  layer\n"
      "  ^");
  EXPECT_EQ(PlacementError(
                "linear { name: \"g\" out: \"k\" } each: \"x = x + sum(k = 1..2, g(x)) * f(x)\""),
            "m.pbtxt:4:20: unknown scalar \"k\"\n"
            "  k\n"
            "  ^");
}

TEST(ProjectionErrorTest, TheResultHasThatWidth) {
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"3\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:31: placement \"p\", each, attention: \"*\" of a tensor [batch, seq, 3] and "
            "a tensor [batch, seq, 8]: one width must divide the other\n"
            "  x = x + g(x) * f(x)\n"
            "               ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"16\" } each: \"x = x + g(x)\" each: \"y = "
                           "f(x)\" each: \"x = x + y\""),
            "m.pbtxt:4:32: placement \"p\", each, attention: \"x\" carries a tensor [batch, seq, "
            "8]; this is a tensor [batch, seq, 16]\n"
            "  x = x + g(x)\n"
            "        ^");
}

TEST(ProjectionErrorTest, AProjectionIsCalledWithOneTensor) {
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + g * f(x)\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: \"g\" is a projection; call it: g(x)\n"
            "  x = x + g * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + g(x, x) * f(x)\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: g takes one tensor, not 2 arguments\n"
            "  x = x + g(x, x) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + g() * f(x)\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: g takes one tensor, not 0 arguments\n"
            "  x = x + g() * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + g(2) * f(x)\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: g takes a tensor; this is a number\n"
            "  x = x + g(2) * f(x)\n"
            "            ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"v\" per_channel: true } linear { name: \"g\" } each: \"x = "
                     "x + g(v) * f(x)\""),
      "m.pbtxt:4:62: placement \"p\", each, attention: g takes a tensor; this is learned [8]\n"
      "  x = x + g(v) * f(x)\n"
      "            ^");
  EXPECT_EQ(PlacementError("linear { name: \"gg\" } each: \"x = x + gh(x) * f(x)\""),
            "m.pbtxt:4:23: placement \"p\", each, attention: unknown function \"gh\"; did you mean "
            "\"gg\"?\n"
            "  x = x + gh(x) * f(x)\n"
            "          ^");
}

TEST(ProjectionErrorTest, AProjectionIsUsed) {
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\": linear \"g\" is declared and never called");
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"g = x\" each: \"x = x + g * f(x)\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: \"g\" is a projection; a statement "
            "cannot set it\n"
            "  g = x\n"
            "  ^");
}

TEST(ProjectionErrorTest, TheNameIsItsOwn) {
  EXPECT_EQ(PlacementError(
                "linear { name: \"g\" } learned { name: \"g\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:1: linear \"g\" is already defined");
  EXPECT_EQ(
      PlacementError("linear { name: \"g\" } linear { name: \"g\" } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:22: linear \"g\" is already defined");
  EXPECT_EQ(PlacementError("let: \"g = 2\" linear { name: \"g\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:14: linear \"g\": the name is that of a let; give it another");
  EXPECT_EQ(PlacementError("linear { name: \"sqrt\" } each: \"x = x + sqrt(x) * f(x)\""),
            "m.pbtxt:4:1: linear \"sqrt\": the name is that of a function of the language; give it "
            "another");
  EXPECT_EQ(PlacementError("linear { name: \"x\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: linear \"x\": the name is that of the residual stream; give it another");
  EXPECT_EQ(PlacementError("linear { name: \"layer\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: linear \"layer\": the name is that of a scalar of the language; give it "
            "another");
  EXPECT_EQ(PlacementError("linear { name: \"step\" } each: \"x = x + step(f(x))\""),
            "m.pbtxt:4:1: linear \"step\": the name is that of the training step; give it another");
  EXPECT_EQ(
      PlacementError("linear { name: \"input\" } each: \"x = x + input(f(x))\""),
      "m.pbtxt:4:1: linear \"input\": the name is that of a sublayer's input; give it another");
  EXPECT_EQ(PlacementError("linear { name: \"\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: linear: \"\" is not a name");
  EXPECT_EQ(PlacementError("linear { name: \"a b\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: linear: \"a b\" is not a name");
  EXPECT_EQ(PlacementError("linear { name: \"f\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: linear \"f\": the name is that of the sublayer; give it another");
  EXPECT_EQ(
      PlacementError("linear { name: \"attention\" } block: \"x = x + attention(x) + mlp(x)\""),
      "m.pbtxt:4:1: linear \"attention\": the name is that of a sublayer; give it another");
  EXPECT_EQ(PlacementError("linear { name: \"q\" } each: \"x = x + f(x)\" inside { point: "
                           "\"attention.q\" rule: \"q = q(input)\" }"),
            "m.pbtxt:4:73: placement \"p\", inside attention.q: \"q\" is a projection; a statement "
            "cannot set it\n"
            "  q = q(input)\n"
            "  ^");
}

TEST(ProjectionErrorTest, TheInitIsForTheWeight) {
  EXPECT_EQ(
      PlacementError(
          "linear { name: \"g\" init { match: \"*\" normal {} } } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:27: linear \"g\": its init has no match; it is for this weight");
  EXPECT_EQ(
      PlacementError("linear { name: \"g\" init { } } each: \"x = x + g(x) * f(x)\""),
      "m.pbtxt:4:20: init: needs a distribution (normal, truncated_normal, uniform, xavier_normal, "
      "xavier_uniform, kaiming_uniform, constant), a scale, or both");
}

TEST(ProjectionErrorTest, ABiasIsAskedFor) {
  EXPECT_EQ(PlacementError("linear { name: \"g\" bias_init: \"1\" } each: \"x = x + g(x) * f(x)\""),
            "m.pbtxt:4:20: linear \"g\" has bias_init and no bias: true");
}

}  // namespace
}  // namespace plumb
