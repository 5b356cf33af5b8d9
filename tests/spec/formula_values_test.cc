// Functions, operators and the names that are always there: every way to misuse them, each message
// as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(FormulaValueErrorTest, DotTakesTwoTensorsOfOneWidth) {
  EXPECT_EQ(
      PlacementError("each: \"x = x + dot(x) * f(x)\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: dot takes two tensors, not 1 arguments\n"
      "  x = x + dot(x) * f(x)\n"
      "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + dot(x, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: dot takes tensors; this is a number\n"
            "  x = x + dot(x, 2) * f(x)\n"
            "                 ^");
  EXPECT_EQ(
      PlacementError(
          "each: \"x = x + f(x)\" linear { name: \"g\" out: \"4\" } end: \"x = x * dot(x, g(x))\""),
      "m.pbtxt:4:52: placement \"p\", end: dot of a tensor [batch, seq, 8] and a tensor [batch, "
      "seq, 4]: their widths must be equal\n"
      "  x = x * dot(x, g(x))\n"
      "          ^");
}

TEST(FormulaValueErrorTest, PartTakesOneOfNParts) {
  EXPECT_EQ(PlacementError("each: \"x = x + part(x) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: part takes a tensor, the part's number "
            "from 0, and the number of parts: part(x, 0, 2)\n"
            "  x = x + part(x) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, 0, 3) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a tensor [batch, seq, 8] has no 3 "
            "equal parts\n"
            "  x = x + part(x, 0, 3) * f(x)\n"
            "                     ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, 2, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the parts are 0 to 1; this is 2 at "
            "layer 1, sublayer 1\n"
            "  x = x + part(x, 2, 2) * f(x)\n"
            "                  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, -1, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the parts are 0 to 1; this is -1 at "
            "layer 1, sublayer 1\n"
            "  x = x + part(x, -1, 2) * f(x)\n"
            "                  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, 0.5, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the number of a part is a whole "
            "number; this is 0.5 at layer 1, sublayer 1\n"
            "  x = x + part(x, 0.5, 2) * f(x)\n"
            "                  ^");
  // Each part is a value of the graph, also one that nothing reads.
  EXPECT_EQ(PlacementError("linear { name: \"g\" out: \"125000\" } "
                           "each: \"x = x + part(g(x), 0, 125000) * f(x)\""),
            "m.pbtxt:4:36: placement \"p\", each, attention: a tensor of 125000 parts at layer 1, "
            "sublayer 1; at most 10000\n"
            "  x = x + part(g(x), 0, 125000) * f(x)\n"
            "                        ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, 0, 0) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a tensor [batch, seq, 8] has no 0 "
            "equal parts\n"
            "  x = x + part(x, 0, 0) * f(x)\n"
            "                     ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(x, x, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the number of a part is decided when "
            "the model is loaded; this is a tensor [batch, seq, 8]\n"
            "  x = x + part(x, x, 2) * f(x)\n"
            "                  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + part(2, 0, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: part takes a tensor; this is a number\n"
            "  x = x + part(2, 0, 2) * f(x)\n"
            "               ^");
}

TEST(FormulaValueErrorTest, ConcatTakesTensors) {
  EXPECT_EQ(PlacementError("each: \"x = x + concat() * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: concat takes tensors\n"
            "  x = x + concat() * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + concat(1, 2) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: concat takes tensors\n"
            "  x = x + concat(1, 2) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(concat(x, x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: f takes a tensor [batch, seq, 8]; this "
            "is a tensor [batch, seq, 16]\n"
            "  x = x + f(concat(x, x))\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = concat(part(x, 0, 2), part(f(x), 1, 2))\""), "no error");
}

TEST(FormulaValueErrorTest, StopTakesOneValue) {
  EXPECT_EQ(PlacementError("each: \"x = x + stop() * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: stop takes one argument, not 0\n"
            "  x = x + stop() * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + stop(x, x) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: stop takes one argument, not 2\n"
            "  x = x + stop(x, x) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = stop(x + f(x))\""), "no error");
}

TEST(FormulaValueErrorTest, DropTakesATensorAndAProbability) {
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: drop takes a tensor and a probability: "
            "drop(x, 0.1)\n"
            "  x = x + drop(f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x), 1)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the probability is a number from 0 to "
            "below 1; this is 1 at layer 1, sublayer 1\n"
            "  x = x + drop(f(x), 1)\n"
            "                     ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x), -0.1)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the probability is a number from 0 to "
            "below 1; this is -0.1 at layer 1, sublayer 1\n"
            "  x = x + drop(f(x), -0.1)\n"
            "                     ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x), x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the probability is a number from 0 to "
            "below 1; this is a tensor [batch, seq, 8] at layer 1, sublayer 1\n"
            "  x = x + drop(f(x), x)\n"
            "                     ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x), step / 1000)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the probability is a number from 0 to "
            "below 1; this is a learned scalar at layer 1, sublayer 1; \"step\" changes while a "
            "model is trained\n"
            "  x = x + drop(f(x), step / 1000)\n"
            "                          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(f(x), 0.1 * layer, 2)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: drop takes a tensor and a probability: "
            "drop(x, 0.1)\n"
            "  x = x + drop(f(x), 0.1 * layer, 2)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop(2, 0.1) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: drop takes a tensor; this is a number\n"
            "  x = x + drop(2, 0.1) * f(x)\n"
            "               ^");
  EXPECT_EQ(PlacementError("learned { name: \"g\" } each: \"x = x + drop(g, 0.1) * f(x)\""),
            "m.pbtxt:4:23: placement \"p\", each, attention: drop takes a tensor; this is a "
            "learned scalar\n"
            "  x = x + drop(g, 0.1) * f(x)\n"
            "               ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop_path(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: drop_path takes a tensor and a "
            "probability: drop_path(x, 0.1)\n"
            "  x = x + drop_path(f(x))\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop_path(f(x), 1.5)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the probability is a number from 0 to "
            "below 1; this is 1.5 at layer 1, sublayer 1\n"
            "  x = x + drop_path(f(x), 1.5)\n"
            "                          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop_path(f(x), layer / n_layer)\""),
            "m.pbtxt:4:1: placement \"p\", each, layer 2 (attention): the probability is a number "
            "from 0 to below 1; this is 1 at layer 2, sublayer 3\n"
            "  x = x + drop_path(f(x), layer / n_layer)\n"
            "                                ^");
  EXPECT_EQ(PlacementError("each: \"x = x + drop_paths(f(x), 0.1)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"drop_paths\"; did "
            "you mean \"drop_path\"?\n"
            "  x = x + drop_paths(f(x), 0.1)\n"
            "          ^");
}

TEST(FormulaValueErrorTest, FunctionsCountTheirArguments) {
  EXPECT_EQ(PlacementError("each: \"x = x + max() * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: max takes 1 to 16 arguments, not 0\n"
            "  x = x + max() * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError(
                "each: \"x = x + max(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: max takes 1 to 16 arguments, not 17\n"
            "  x = x + max(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + exp(x, x) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: exp takes one argument, not 2\n"
            "  x = x + exp(x, x) * f(x)\n"
            "          ^");
}

TEST(FormulaValueErrorTest, NumbersAreFinite) {
  EXPECT_EQ(PlacementError("each: \"x = x + 0 ^ -1 * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"0 ^ -1\" is not finite at layer 1, "
            "sublayer 1\n"
            "  x = x + 0 ^ -1 * f(x)\n"
            "            ^");
  EXPECT_EQ(PlacementError("each: \"x = x + (-1) ^ 0.5 * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"(-1) ^ 0.5\" is not a real number at "
            "layer 1, sublayer 1\n"
            "  x = x + (-1) ^ 0.5 * f(x)\n"
            "               ^");
  EXPECT_EQ(PlacementError("each: \"x = x + log(0) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"log(0)\" is not finite at layer 1, "
            "sublayer 1\n"
            "  x = x + log(0) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + log(-1) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"log(-1)\" is not a real number at "
            "layer 1, sublayer 1\n"
            "  x = x + log(-1) * f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x ^ 1e300 + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at layer "
            "1, sublayer 1\n"
            "  x = x ^ 1e300 + f(x)\n"
            "        ^");
  EXPECT_EQ(PlacementError("each: \"x = max(x, 1e300) + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at layer "
            "1, sublayer 1\n"
            "  x = max(x, 1e300) + f(x)\n"
            "      ^");
  EXPECT_EQ(PlacementError("each: \"x = x + (x > 1e300) * f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a number is too large for f32 at layer "
            "1, sublayer 1\n"
            "  x = x + (x > 1e300) * f(x)\n"
            "             ^");
  EXPECT_EQ(PlacementError(
                "learned { name: \"g\" init_expression: \"1e300\" } each: \"x = x + g * f(x)\""),
            "m.pbtxt:4:21: an initial value of 1e+300 is too large for f32 at layer 1, sublayer 1\n"
            "  1e300\n"
            "  ^");
}

TEST(FormulaValueErrorTest, ConditionsAreNumbers) {
  EXPECT_EQ(PlacementError("each: \"x = x + (f(x) > 0 and x > 0)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"and\" works on numbers; this is a "
            "tensor [batch, seq, 8]; conditions are decided when the model is loaded\n"
            "  x = x + (f(x) > 0 and x > 0)\n"
            "                ^");
  EXPECT_EQ(PlacementError("each: \"x = x + not f(x)\""),
            "m.pbtxt:4:1: expected a value, not \"not\"; in an expression a condition stands in "
            "parentheses\n"
            "  x = x + not f(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + (not f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"not\" works on numbers; this is a "
            "tensor [batch, seq, 8]; conditions are decided when the model is loaded\n"
            "  x = x + (not f(x))\n"
            "               ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) if step > 10\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: a condition is decided when the model "
            "is loaded; it cannot read a tensor; \"step\" changes while a model is trained\n"
            "  x = x + f(x) if step > 10\n"
            "                       ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x) if input == 1\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"input\"; it is what a "
            "sublayer was given, and has a value only inside one\n"
            "  x = x + f(x) if input == 1\n"
            "                  ^");
  EXPECT_EQ(PlacementError("learned { name: \"g\" } each: \"x = x + f(x) if g > 0\""),
            "m.pbtxt:4:23: placement \"p\", each, attention: a condition is decided when the model "
            "is loaded; it cannot read a tensor\n"
            "  x = x + f(x) if g > 0\n"
            "                    ^");
}

TEST(FormulaValueErrorTest, TheStepIsNotKnownWhenAModelIsLoaded) {
  EXPECT_EQ(PlacementError("let: \"a = step\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: unknown scalar \"step\"; it changes while a model is trained: statements "
            "may read it, but not what is decided when the model is loaded\n"
            "  a = step\n"
            "      ^");
  EXPECT_EQ(PlacementError(
                "learned { name: \"g\" init_expression: \"step\" } each: \"x = x + g * f(x)\""),
            "m.pbtxt:4:21: unknown scalar \"step\"; it changes while a model is trained: "
            "statements may read it, but not what is decided when the model is loaded\n"
            "  step\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"step = f(x)\" each: \"x = x + step\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"step\" is the training step; a "
            "statement cannot set it\n"
            "  step = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + step(f(x))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown function \"step\"; did you "
            "mean \"stop\"?\n"
            "  x = x + step(f(x))\n"
            "          ^");
}

TEST(FormulaValueErrorTest, NumbersAreNotReadFromTensors) {
  EXPECT_EQ(PlacementError("let: \"a = input\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: \"input\" is a tensor; a number is needed here\n"
            "  a = input\n"
            "      ^");
  EXPECT_EQ(PlacementError("let: \"a = x\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: \"x\" is a tensor; a number is needed here\n"
            "  a = x\n"
            "      ^");
  EXPECT_EQ(PlacementError("let: \"a = drop(1, 0.5)\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: drop is for statements; a number is needed here\n"
            "  a = drop(1, 0.5)\n"
            "      ^");
  EXPECT_EQ(PlacementError("learned { name: \"g\" init_expression: \"sum(k = 0..1, k)\" } each: "
                           "\"x = x + g * f(x)\""),
            "m.pbtxt:4:21: sum is for statements; a number is needed here\n"
            "  sum(k = 0..1, k)\n"
            "  ^");
}

TEST(FormulaValueErrorTest, TheInputIsThatOfASublayer) {
  EXPECT_EQ(PlacementError("each: \"input = f(x)\" each: \"x = x + input\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"input\" is what the sublayer was "
            "given; a statement cannot set it\n"
            "  input = f(x)\n"
            "  ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(input)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"input\"; it is what a "
            "sublayer was given, and has a value only inside one\n"
            "  x = x + f(input)\n"
            "            ^");
  EXPECT_EQ(PlacementError("end: \"x = input\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", end: unknown name \"input\"; it is what a sublayer was "
            "given, and has a value only inside one\n"
            "  x = input\n"
            "      ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x)\" inside { point: \"head.logits\" rule: \"logits "
                           "= logits + input\" }"),
            "m.pbtxt:4:52: placement \"p\", inside head.logits: unknown name \"input\"; it is what "
            "a sublayer was given, and has a value only inside one\n"
            "  logits = logits + input\n"
            "                    ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"input = "
                           "q\" rule: \"q = input\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: \"input\" is what the sublayer was "
            "given; a statement cannot set it\n"
            "  input = q\n"
            "  ^");
}

TEST(FormulaValueErrorTest, InsideASublayerStreamsAreRead) {
  EXPECT_EQ(PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"step = "
                           "q\" rule: \"q = step\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: \"step\" is the training step; a "
            "statement cannot set it\n"
            "  step = q\n"
            "  ^");
  EXPECT_EQ(
      PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"x = q\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: \"x\" is a stream; inside a sublayer it "
      "can be read, not set\n"
      "  x = q\n"
      "  ^");
  EXPECT_EQ(PlacementError("begin: \"d = x\" each: \"x = x + f(x)\" inside { point: "
                           "\"attention.q\" rule: \"d = q\" } end: \"x = x + d\""),
            "m.pbtxt:4:67: placement \"p\", inside attention.q: \"d\" is a stream; inside a "
            "sublayer it can be read, not set\n"
            "  d = q\n"
            "  ^");
  EXPECT_EQ(
      PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = f(q)\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: no sublayer can be called here: f\n"
      "  q = f(q)\n"
      "      ^");
  EXPECT_EQ(
      PlacementError(
          "each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = attention(q)\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: no sublayer can be called here: "
      "attention\n"
      "  q = attention(q)\n"
      "      ^");
}

TEST(FormulaValueErrorTest, APointHasItsNameAndItsWidth) {
  EXPECT_EQ(
      PlacementError("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"k = q\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: \"k\" is set and never read\n"
      "  k = q\n"
      "  ^");
  EXPECT_EQ(PlacementError(
                "each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = q + k\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: unknown name \"k\"; here there are "
            "input, q, x, and the model's dimensions\n"
            "  q = q + k\n"
            "          ^");
  EXPECT_EQ(
      PlacementError(
          "each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = part(q, 0, 2)\" }"),
      "m.pbtxt:4:52: placement \"p\", inside attention.q: \"q\" carries a tensor [batch, seq, 8]; "
      "this is a tensor [batch, seq, 4]\n"
      "  q = part(q, 0, 2)\n"
      "      ^");
  EXPECT_EQ(PlacementError(
                "each: \"x = x + f(x)\" inside { point: \"mlp.gates\" rule: \"gate = 2 * gate\" }"),
            "m.pbtxt:4:31: inside: unknown point \"mlp.gates\"; the points are attention.q, "
            "attention.k, attention.v, attention.q_rot, attention.k_rot, attention.context, "
            "mlp.gate, mlp.up, mlp.hidden, head.logits; did you mean \"mlp.gate\"?");
  EXPECT_EQ(PlacementError(
                "each: \"x = x + f(x)\" inside { point: \"mlp.up\" rule: \"up = up * hidden\" }"),
            "m.pbtxt:4:47: placement \"p\", inside mlp.up: unknown name \"hidden\"; here there are "
            "input, up, x, and the model's dimensions\n"
            "  up = up * hidden\n"
            "            ^");
}

TEST(FormulaValueErrorTest, TheGateIsThatOfAGatedMlp) {
  EXPECT_EQ(PlacementError(
                "each: \"x = x + f(x)\" inside { point: \"mlp.gate\" rule: \"gate = 2 * gate\" }"),
            "m.pbtxt:4:31: inside mlp.gate: no MLP of the block is gated; write mlp { gated: true "
            "}, or use mlp.up");
}

TEST(FormulaValueErrorTest, AttentionAloneTakesThree) {
  EXPECT_EQ(PlacementError("block: \"x = x + mlp(x, x, x) + attention(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: mlp takes one tensor, not 3 arguments\n"
            "  x = x + mlp(x, x, x) + attention(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("each: \"x = x + f(x, x, x)\""),
            "m.pbtxt:4:1: placement \"p\", each, mlp: f takes one tensor, not 3 arguments\n"
            "  x = x + f(x, x, x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("block: \"x = x + attention(x, x) + mlp(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: attention takes one tensor, or those of its "
            "queries, keys and values, not 2 arguments\n"
            "  x = x + attention(x, x) + mlp(x)\n"
            "          ^");
  EXPECT_EQ(PlacementError("block: \"x = x + attention(x, 2, x) + mlp(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: attention takes a tensor; this is a number\n"
            "  x = x + attention(x, 2, x) + mlp(x)\n"
            "                       ^");
  EXPECT_EQ(
      PlacementError(
          "linear { name: \"g\" out: \"4\" } block: \"x = x + attention(x, g(x), x) + mlp(x)\""),
      "m.pbtxt:4:31: placement \"p\", block: attention takes a tensor [batch, seq, 8]; this is a "
      "tensor [batch, seq, 4]\n"
      "  x = x + attention(x, g(x), x) + mlp(x)\n"
      "                       ^");
  EXPECT_EQ(PlacementError("block: \"x = x + attention(x, x, x) + mlp(x) if layer == 1\" block: "
                           "\"x = x + attention(x) + mlp(x) if layer > 1\""),
            "no error");
}

}  // namespace
}  // namespace plumb
