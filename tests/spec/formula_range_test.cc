// Ranges of statements, sums and softmaxes: every way to misuse them, each message as a user sees
// it.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(FormulaRangeErrorTest, TheEndsAreWholeNumbersNotTooFarApart) {
  EXPECT_EQ(
      PlacementError(
          "begin: \"h[i] = x for i = 0..20000\" each: \"x = x + f(sum(i = 0..20000, h[i]))\""),
      "m.pbtxt:4:1: placement \"p\", begin: the range has 20001 values; at most 10000\n"
      "  h[i] = x for i = 0..20000\n"
      "                   ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0..1.5\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: the last value of a range is a whole number; "
            "this is 1.5\n"
            "  h[i] = x for i = 0..1.5\n"
            "                      ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0..x\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: the last value of a range is decided when the "
            "model is loaded; this is a tensor [batch, seq, 8]\n"
            "  h[i] = x for i = 0..x\n"
            "                      ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0...1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: the last value of a range is a whole number; "
            "this is 0.1\n"
            "  h[i] = x for i = 0...1\n"
            "                      ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..9999, sum(j = 0..9999, x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the model's formulas come to more than "
            "4000000 operations at layer 1, sublayer 1, k = 399, j = 8792; shorten its ranges\n"
            "  x = x + f(x) + sum(k = 0..9999, sum(j = 0..9999, x))\n"
            "                                                   ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1e30, x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the last value of a range is a whole "
            "number of at most 1e9; this is 1e+30 at layer 1, sublayer 1\n"
            "  x = x + f(x) + sum(k = 0..1e30, x)\n"
            "                            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = -1e9..1e9, x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the range has 2000000001 values at "
            "layer 1, sublayer 1; at most 10000\n"
            "  x = x + f(x) + sum(k = -1e9..1e9, x)\n"
            "                         ^");
}

TEST(FormulaRangeErrorTest, TheVariableHasANameOfItsOwn) {
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for layer = 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"layer\" means something already; give the "
            "index another name\n"
            "  h[i] = x for layer = 0..1\n"
            "               ^");
  EXPECT_EQ(
      PlacementError("begin: \"h[n_layer] = x for n_layer = 0..1\" each: \"x = x + f(h[0])\""),
      "m.pbtxt:4:1: placement \"p\", begin: \"n_layer\" means something already; give the index "
      "another name\n"
      "  h[n_layer] = x for n_layer = 0..1\n"
      "                     ^");
  EXPECT_EQ(PlacementError("begin: \"h[x] = x for x = 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"x\" means something already; give the index "
            "another name\n"
            "  h[x] = x for x = 0..1\n"
            "               ^");
  EXPECT_EQ(PlacementError("begin: \"h[sum] = x for sum = 0..1\" each: \"x = x + f(h[0] + h[1])\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"sum\" means something already; give the index "
            "another name\n"
            "  h[sum] = x for sum = 0..1\n"
            "                 ^");
  EXPECT_EQ(
      PlacementError("begin: \"h[step] = x for step = 0..1\" each: \"x = x + f(h[0] + h[1])\""),
      "m.pbtxt:4:1: placement \"p\", begin: \"step\" means something already; give the index "
      "another name\n"
      "  h[step] = x for step = 0..1\n"
      "                  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1, sum(k = 0..1, x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"k\" means something already; give "
            "the index another name\n"
            "  x = x + f(x) + sum(k = 0..1, sum(k = 0..1, x))\n"
            "                               ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) * k\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"k\"; here there are x, "
            "and the model's dimensions\n"
            "  x = x + f(x) * k\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1, k) * k\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"k\"; here there are x, "
            "and the model's dimensions\n"
            "  x = x + f(x) + sum(k = 0..1, k) * k\n"
            "                                    ^");
}

TEST(FormulaRangeErrorTest, ARangeSetsNamesWithAnIndex) {
  EXPECT_EQ(PlacementError("begin: \"h = x for i = 0..1\" each: \"x = x + f(h)\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"h\" is set for each i; give it an index: h[i]\n"
            "  h = x for i = 0..1\n"
            "  ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x for i = 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"h[0]\" is set more than once by this statement "
            "at i = 1\n"
            "  h[0] = x for i = 0..1\n"
            "  ^");
}

TEST(FormulaRangeErrorTest, ARangeIsWrittenOnce) {
  EXPECT_EQ(
      PlacementError("begin: \"h[i] = x for i = 0..1 for j = 0..1\" each: \"x = x + f(h[0])\""),
      "m.pbtxt:4:1: a statement has one range; write a statement for each value of the other\n"
      "  h[i] = x for i = 0..1 for j = 0..1\n"
      "                        ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x if i > 0 for i = 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: \"for\" stands before \"if\": \"h[i] = x for i = 1..n if layer > 1\"\n"
            "  h[i] = x if i > 0 for i = 0..1\n"
            "                    ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i in 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: expected \"=\" of the range of i: \"i = 1..n_layer\"\n"
            "  h[i] = x for i in 0..1\n"
            "                 ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0:1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: a formula cannot hold \":\"\n"
            "  h[i] = x for i = 0:1\n"
            "                    ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for 0..1\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: expected a range: \"i = 1..n_layer\"\n"
            "  h[i] = x for 0..1\n"
            "               ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + 0 .. 1\""),
            "m.pbtxt:4:1: \"..\" stands in a range: \"for i = 1..n\", \"sum(k = 1..n, h[k])\"\n"
            "  x = x + f(x) + 0 .. 1\n"
            "                   ^");
}

TEST(FormulaRangeErrorTest, ARangeStandsFirstInASum) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1, k = 0..1, x)\""),
            "m.pbtxt:4:1: expected \")\" to close sum(k = first..last, term)\n"
            "  x = x + f(x) + sum(k = 0..1, k = 0..1, x)\n"
            "                                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1)\""),
            "m.pbtxt:4:1: expected \",\" of sum(k = first..last, term)\n"
            "  x = x + f(x) + sum(k = 0..1)\n"
            "                             ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 0..1, x, x)\""),
            "m.pbtxt:4:1: expected \")\" to close sum(k = first..last, term)\n"
            "  x = x + f(x) + sum(k = 0..1, x, x)\n"
            "                                ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(0..1, x)\""),
            "m.pbtxt:4:1: a range stands first in sum(k = 1..n, ..), softmax(k = 1..n, .., ..) and "
            "concat(k = 1..n, ..), and nowhere else in an expression\n"
            "  x = x + f(x) + sum(0..1, x)\n"
            "                      ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k in 0..1, x)\""),
            "m.pbtxt:4:1: a range stands first in sum(k = 1..n, ..), softmax(k = 1..n, .., ..) and "
            "concat(k = 1..n, ..), and nowhere else in an expression\n"
            "  x = x + f(x) + sum(k in 0..1, x)\n"
            "                       ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 1, x)\""),
            "m.pbtxt:4:1: expected \"..\" and the last value of k\n"
            "  x = x + f(x) + sum(k = 1, x)\n"
            "                          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + mean(k = 0..1, x)\""),
            "m.pbtxt:4:1: a range stands first in sum(k = 1..n, ..), softmax(k = 1..n, .., ..) and "
            "concat(k = 1..n, ..), and nowhere else in an expression\n"
            "  x = x + f(x) + mean(k = 0..1, x)\n"
            "                        ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + max(k = 0..1, x)\""),
            "m.pbtxt:4:1: a range stands first in sum(k = 1..n, ..), softmax(k = 1..n, .., ..) and "
            "concat(k = 1..n, ..), and nowhere else in an expression\n"
            "  x = x + f(x) + max(k = 0..1, x)\n"
            "                       ^");
}

TEST(FormulaRangeErrorTest, AnEmptySumIsZeroAndAnEmptySoftmaxAnError) {
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 1..0\" each: \"x = x + f(x)\""), "no error");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(k = 1..0, h[k])\""), "no error");
  EXPECT_EQ(PlacementError("each: \"x = x + f(sum(k = 1..0, h[k]))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: f takes a tensor; this is a number\n"
            "  x = x + f(sum(k = 1..0, h[k]))\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) * sum(k = 1..0, x)\""), "no error");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + softmax(k = 1..0, 1, h[k])\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: softmax over nothing: k = 1..0 at "
            "layer 1, sublayer 1\n"
            "  x = x + f(x) + softmax(k = 1..0, 1, h[k])\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + concat(k = 1..0, h[k])\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: concat over nothing: k = 1..0 at layer "
            "1, sublayer 1\n"
            "  x = x + f(x) + concat(k = 1..0, h[k])\n"
            "                 ^");
}

TEST(FormulaRangeErrorTest, ASoftmaxHasABound) {
  EXPECT_EQ(PlacementError("each: \"x = softmax(k = 0..1024, k, x) + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: softmax over 1025 values at layer 1, "
            "sublayer 1; at most 1024\n"
            "  x = softmax(k = 0..1024, k, x) + f(x)\n"
            "      ^");
  EXPECT_EQ(PlacementError("each: \"x = softmax(k = 0..1023, k, x) + f(x)\""), "no error");
}

TEST(FormulaRangeErrorTest, ASumIsNoSumOverChannels) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: sum runs over a range: sum(k = 1..n, "
            "h[k]); the sum over channels of a product is dot(a, b)\n"
            "  x = x + f(x) + sum(x)\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + sum()\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: sum runs over a range: sum(k = 1..n, "
            "h[k]); the sum over channels of a product is dot(a, b)\n"
            "  x = x + f(x) + sum()\n"
            "                 ^");
  EXPECT_EQ(
      PlacementError("each: \"x = x + f(x) + sum\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: \"sum\" is a function; call it: sum(...)\n"
      "  x = x + f(x) + sum\n"
      "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + softmax(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: softmax runs over a range: softmax(k = "
            "1..n, score, value)\n"
            "  x = x + f(x) + softmax(x)\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + softmax(k = 0..1, x)\""),
            "m.pbtxt:4:1: expected \",\" of softmax(k = first..last, score, value)\n"
            "  x = x + f(x) + softmax(k = 0..1, x)\n"
            "                                    ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) + softmax(k = 0..1, x, x, x)\""),
            "m.pbtxt:4:1: expected \")\" to close softmax(k = first..last, score, value)\n"
            "  x = x + f(x) + softmax(k = 0..1, x, x, x)\n"
            "                                       ^");
  EXPECT_EQ(PlacementError("let: \"a = sum(k = 0..3, k)\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: sum is for statements; a number is needed here\n"
            "  a = sum(k = 0..3, k)\n"
            "      ^");
}

TEST(FormulaRangeErrorTest, ASublayerIsCalledOnceInARange) {
  EXPECT_EQ(PlacementError("each: \"x = x + sum(k = 0..1, f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the sublayer f is called twice; its "
            "keys and values would be cached twice\n"
            "  x = x + sum(k = 0..1, f(x))\n"
            "                        ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0..1\" block: \"h[i] = attention(h[i]) + "
                           "mlp(x) for i = 0..1\" end: \"x = h[0] + h[1]\""),
            "m.pbtxt:4:32: placement \"p\", block: the sublayer attention is called twice; its "
            "keys and values would be cached twice\n"
            "  h[i] = attention(h[i]) + mlp(x) for i = 0..1\n"
            "         ^");
}

TEST(FormulaRangeErrorTest, StreamsAreMixedInPlace) {
  EXPECT_EQ(
      PlacementError("begin: \"h[i] = x for i = 0 .. 1\" each: \"x = x + f(sum(i = 0..1, h[i]))\""),
      "no error");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 0..1\" block: \"h[i] = h[1 - i] for i = "
                           "0..1\" block: \"x = x + attention(h[0]) + mlp(h[1])\""),
            "no error");
  EXPECT_EQ(
      PlacementError(
          "begin: \"h[i] = part(x, i, 2) for i = 0..1\" each: \"x = x + f(concat(h[0], h[1]))\""),
      "no error");
}

}  // namespace
}  // namespace plumb
