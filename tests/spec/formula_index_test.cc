// Indexed names and tables: every way to misuse them, each message as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(FormulaIndexErrorTest, AnIndexIsAWholeNumberThatIsKnownWhenTheModelIsLoaded) {
  EXPECT_EQ(PlacementError("begin: \"h[0.5] = x\" each: \"x = x + f(h[0.5])\""),
            "m.pbtxt:4:1: placement \"p\", begin: an index is a whole number; this is 0.5\n"
            "  h[0.5] = x\n"
            "    ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(h[x])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: an index is decided when the model is "
            "loaded; this is a tensor [batch, seq, 8]\n"
            "  x = x + f(h[x])\n"
            "              ^");
  EXPECT_EQ(PlacementError("begin: \"h[1 / 0] = x\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", begin: division by zero\n"
            "  h[1 / 0] = x\n"
            "      ^");
  EXPECT_EQ(PlacementError("begin: \"h[1e12] = x\" each: \"x = x + f(h[1e12])\""),
            "m.pbtxt:4:1: placement \"p\", begin: an index is a whole number of at most 1e9; this "
            "is 1e+12\n"
            "  h[1e12] = x\n"
            "    ^");
  EXPECT_EQ(PlacementError("begin: \"h[step] = x\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:1: placement \"p\", begin: an index is decided when the model is loaded; "
            "this is a learned scalar; \"step\" changes while a model is trained\n"
            "  h[step] = x\n"
            "    ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(norm[0.5](x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: an index is a whole number; this is "
            "0.5 at layer 1, sublayer 1\n"
            "  x = x + f(norm[0.5](x))\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(norm[x](x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: an index is decided when the model is "
            "loaded; this is a tensor [batch, seq, 8]\n"
            "  x = x + f(norm[x](x))\n"
            "                 ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(x) if h[0]\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: a condition is decided when the model "
            "is loaded; it cannot read a tensor\n"
            "  x = x + f(x) if h[0]\n"
            "                  ^");
}

TEST(FormulaIndexErrorTest, WhatIsReadHasBeenSet) {
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(h[1])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"h[1]\" is not set at layer 1, "
            "sublayer 1; there are h[0]\n"
            "  x = x + f(h[1])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(h[layer])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"h[1]\" is not set at layer 1, "
            "sublayer 1; there are h[0]\n"
            "  x = x + f(h[layer])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(g[0])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"g[0]\" is not set at layer 1, "
            "sublayer 1; here there are x, h[0], and the model's dimensions\n"
            "  x = x + f(g[0])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(hh[0])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"hh[0]\" is not set at layer 1, "
            "sublayer 1; did you mean \"h\"?\n"
            "  x = x + f(hh[0])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(h[0, 1])\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"h[0, 1]\" is not set at layer 1, "
            "sublayer 1; there are h[0]\n"
            "  x = x + f(h[0, 1])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h[i] = x for i = 1..0\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:32: placement \"p\", each, attention: \"h[0]\" is not set at layer 1, "
            "sublayer 1; here there are x, and the model's dimensions\n"
            "  x = x + f(h[0])\n"
            "            ^");
}

TEST(FormulaIndexErrorTest, ANameHasAnIndexOrNone) {
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(h)\""),
            "m.pbtxt:4:19: placement \"p\", each, attention: \"h\" has an index; there are h[0]\n"
            "  x = x + f(h)\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x[0])\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"x\" has no index; parts of its "
            "channels are part(x, i, n)\n"
            "  x = x + f(x[0])\n"
            "            ^");
  EXPECT_EQ(PlacementError("begin: \"h = x\" begin: \"h[0] = x\" each: \"x = x + f(h)\""),
            "m.pbtxt:4:16: placement \"p\", begin: \"h\" has no index elsewhere; use another name\n"
            "  h[0] = x\n"
            "  ^");
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" begin: \"h = x\" each: \"x = x + f(h[0])\""),
            "m.pbtxt:4:19: placement \"p\", begin: \"h\" has an index elsewhere (h[0]); use "
            "another name\n"
            "  h = x\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"x[0] = f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"x\" has no index elsewhere; use "
            "another name\n"
            "  x[0] = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("let: \"a = 2\" each: \"x = x + a[0] * f(x)\""),
            "m.pbtxt:4:14: placement \"p\", each, attention: \"a\" is a number; it has no index\n"
            "  x = x + a[0] * f(x)\n"
            "          ^");
  EXPECT_EQ(
      PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = q[0]\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: \"q\" has no index; parts of its "
      "channels are part(q, i, n)\n"
      "  q = q[0]\n"
      "      ^");
}

TEST(FormulaIndexErrorTest, AnIndexIsWrittenInBrackets) {
  EXPECT_EQ(PlacementError("each: \"x[] = f(x)\""),
            "m.pbtxt:4:1: expected a value, not \"]\"\n"
            "  x[] = f(x)\n"
            "    ^");
  EXPECT_EQ(PlacementError("each: \"x[0 = f(x)\""),
            "m.pbtxt:4:1: expected \"]\" to close x[...]\n"
            "  x[0 = f(x)\n"
            "      ^");
  EXPECT_EQ(PlacementError("begin: \"h[0, ] = x\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: expected a value, not \"]\"\n"
            "  h[0, ] = x\n"
            "       ^");
  EXPECT_EQ(PlacementError("each: \"x = x + 1[0] * f(x)\""),
            "m.pbtxt:4:1: expected an operator or the end, not \"[\"\n"
            "  x = x + 1[0] * f(x)\n"
            "           ^");
}

TEST(FormulaIndexErrorTest, ATableIsReadByItsIndices) {
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w * f(x)\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: \"w\" has an index: w[k]\n"
      "  x = x + w * f(x)\n"
      "          ^");
  EXPECT_EQ(PlacementError(
                "learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w[0, 1] * f(x)\""),
            "m.pbtxt:4:41: placement \"p\", each, attention: \"w\" has an index: w[k]\n"
            "  x = x + w[0, 1] * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..1\" index: \"j = 1..2\" } each: "
                           "\"x = x + w[0] * f(x)\""),
            "m.pbtxt:4:59: placement \"p\", each, attention: \"w\" has an index: w[k, j]\n"
            "  x = x + w[0] * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" } each: \"x = x + w[0] * f(x)\""),
            "m.pbtxt:4:23: placement \"p\", each, attention: \"w\" has no index; declare one: "
            "learned { name: \"w\" index: \"i = 1..n\" }\n"
            "  x = x + w[0] * f(x)\n"
            "          ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w[0.5] * f(x)\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: an index is a whole number; this is 0.5 at "
      "layer 1, sublayer 1\n"
      "  x = x + w[0.5] * f(x)\n"
      "            ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w[x] * f(x)\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: an index is decided when the model is "
      "loaded; this is a tensor [batch, seq, 8]\n"
      "  x = x + w[x] * f(x)\n"
      "            ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"w[0] = f(x)\""),
            "m.pbtxt:4:41: placement \"p\", each, attention: \"w\" is a learned value; a statement "
            "cannot set it\n"
            "  w[0] = f(x)\n"
            "  ^");
}

TEST(FormulaIndexErrorTest, ATableHasItsRange) {
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w[2] * f(x)\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: w: k is in 0..1, and this is 2 at layer 1, "
      "sublayer 1\n"
      "  x = x + w[2] * f(x)\n"
      "            ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1\" } each: \"x = x + w[-1] * f(x)\""),
      "m.pbtxt:4:41: placement \"p\", each, attention: w: k is in 0..1, and this is -1 at layer 1, "
      "sublayer 1\n"
      "  x = x + w[-1] * f(x)\n"
      "            ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..1\" index: \"j = 1..2\" } each: "
                           "\"x = x + w[0, 0] * f(x)\""),
            "m.pbtxt:4:59: placement \"p\", each, attention: w: j is in 1..2, and this is 0 at "
            "layer 1, sublayer 1\n"
            "  x = x + w[0, 0] * f(x)\n"
            "               ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 2..1\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: learned \"w\": 2..1 at layer 1, sublayer 1 is not a range of 1 to 10000 whole "
      "numbers\n"
      "  k = 2..1\n"
      "  ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1.5\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: learned \"w\": 0..1.5 at layer 1, sublayer 1 is not a range of 1 to 10000 "
      "whole numbers\n"
      "  k = 0..1.5\n"
      "  ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..1e6\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: learned \"w\": 0..1e+06 at layer 1, sublayer 1 is not a range of 1 to 10000 "
      "whole numbers\n"
      "  k = 0..1e6\n"
      "  ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..9999\" index: \"j = 0..9999\" } "
                           "each: \"x = x + w[0, 0] * f(x)\""),
            "m.pbtxt:4:42: learned \"w\" would have 100000000 values at layer 1, sublayer 1; at "
            "most 10000\n"
            "  j = 0..9999\n"
            "  ^");
}

TEST(FormulaIndexErrorTest, ATableIsDeclaredWithRanges) {
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k\" } each: \"x = x + w[0] * f(x)\""),
            "m.pbtxt:4:21: expected \"=\" of the range of k: \"k = 1..n_layer\"\n"
            "  k\n"
            "   ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 1\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: expected \"..\" and the last value of k\n"
      "  k = 1\n"
      "       ^");
  EXPECT_EQ(
      PlacementError(
          "learned { name: \"w\" index: \"layer = 0..1\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: \"layer\" is a scalar of the language; an index needs a name of its own\n"
      "  layer = 0..1\n"
      "  ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..1\" index: \"k = 0..1\" } each: "
                           "\"x = x + w[0, 0] * f(x)\""),
            "m.pbtxt:4:39: two indices are called \"k\"; give them different names\n"
            "  k = 0..1\n"
            "  ^");
  EXPECT_EQ(
      PlacementError("learned { name: \"w\" index: \"k = 0..x\" } each: \"x = x + w[0] * f(x)\""),
      "m.pbtxt:4:21: \"x\" is a tensor; a number is needed here\n"
      "  k = 0..x\n"
      "         ^");
  EXPECT_EQ(PlacementError("learned { name: \"w[k]\" } each: \"x = x + w[0] * f(x)\""),
            "m.pbtxt:4:1: learned: \"w[k]\" is not a name; an index is declared with index: \"k = "
            "0..n_layer\"");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..sublayer\" } begin: \"x = w[0] * "
                           "x\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:21: unknown scalar \"sublayer\"; it has a value only in \"each\" and inside "
            "sublayers\n"
            "  k = 0..sublayer\n"
            "         ^");
  EXPECT_EQ(PlacementError("learned { name: \"w\" index: \"k = 0..1\" init_expression: \"j == 0\" "
                           "} each: \"x = x + w[0] * f(x)\""),
            "m.pbtxt:4:39: unknown scalar \"j\"\n"
            "  j == 0\n"
            "  ^");
}

TEST(FormulaIndexErrorTest, ALetHasNoIndex) {
  EXPECT_EQ(PlacementError("let: \"a[0] = 2\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: a let is one number; an indexed one is written as an expression of the "
            "index where it is used\n"
            "  a[0] = 2\n"
            "  ^");
  EXPECT_EQ(PlacementError("let: \"a = h[0]\" begin: \"h[0] = x\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: \"h[0]\" is a tensor; a number is needed here\n"
            "  a = h[0]\n"
            "      ^");
}

TEST(FormulaIndexErrorTest, SlotsAndProjectionsAloneAreCalledWithAnIndex) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(norm[-1](x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: norm[-1]: an index here is in the "
            "names of parameters; it cannot be negative\n"
            "  x = x + f(norm[-1](x))\n"
            "                 ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f[0](x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"f\" has no index: norm slots and "
            "projections have\n"
            "  x = x + f[0](x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + sqrt[0](f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"sqrt\" has no index: norm slots and "
            "projections have\n"
            "  x = x + sqrt[0](f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("linear { name: \"g\" } each: \"x = x + f(g[x](x))\""),
            "m.pbtxt:4:22: placement \"p\", each, attention: an index is decided when the model is "
            "loaded; this is a tensor [batch, seq, 8]\n"
            "  x = x + f(g[x](x))\n"
            "              ^");
}

TEST(FormulaIndexErrorTest, IndexedNamesOfASublayer) {
  EXPECT_EQ(PlacementError(
                "each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"u[layer] = q\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: \"u[1]\" is set and never read\n"
            "  u[layer] = q\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = "
                           "u[layer]\" rule: \"u[layer] = q\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: \"u[1]\" is not set at layer 1, "
            "sublayer 1; it is set further down\n"
            "  q = u[layer]\n"
            "      ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: "
                           "\"u[layer] = q\" rule: \"q = u[1]\" } end: \"x = x + u[1]\""),
            "no error");
}

TEST(FormulaIndexErrorTest, AnIndexedNameIsReadInTime) {
  EXPECT_EQ(PlacementError("begin: \"h[0] = x\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"h[0]\" is set and never read\n"
            "  h[0] = x\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"h[sublayer] = f(x)\" each: \"x = x + x\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"h[1]\" is set and never read\n"
            "  h[sublayer] = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"h[sublayer] = f(x)\" end: \"x = x + h[4]\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: nothing reads \"h[1]\" at layer 1, "
            "sublayer 1, though it calls a sublayer, whose weights would be dead\n"
            "  h[sublayer] = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"h[sublayer] = f(x)\" end: \"x = x + sum(k = 1..3, h[k])\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: nothing reads \"h[4]\" at layer 2, "
            "sublayer 4, though it calls a sublayer, whose weights would be dead\n"
            "  h[sublayer] = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"h[layer] = x\" each: \"x = x + f(h[layer])\""), "no error");
  EXPECT_EQ(PlacementError("block: \"h[layer] = x\" block: \"h[layer] = x\" block: \"x = x + "
                           "attention(h[layer]) + mlp(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: \"h[1]\" is set and never read\n"
            "  h[layer] = x\n"
            "  ^");
}

}  // namespace
}  // namespace plumb
