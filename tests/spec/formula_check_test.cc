// What a formula may not say: names, sublayers, streams, slots. Each message as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

// The error of a model whose placement has these fields.
std::string Error(absl::string_view fields) { return ErrorOf(ModelWith(fields)); }

TEST(FormulaCheckTest, AcceptsWhatTheDesignShows) {
  EXPECT_EQ(Error("each: \"x = x + f(norm(x))\" end: \"x = norm(x)\""), "no error");
  EXPECT_EQ(Error("begin: \"d = x\" each: \"y = f(x)\" each: \"d = d + y\""
                  "each: \"x = norm(x + y)\" end: \"x = x + norm(d)\""),
            "no error");
  EXPECT_EQ(Error("each: \"x = x + norm(f(x))\" each: \"x = norm(x) if sublayer % 12 == 0\""),
            "no error");
}

TEST(FormulaCheckTest, NamesMustBeKnown) {
  EXPECT_EQ(Error("each: \"x = x + f(norm(y))\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"y\"; here there are x, "
            "and the model's dimensions\n"
            "  x = x + f(norm(y))\n"
            "                 ^");
  EXPECT_EQ(Error("each: \"x = x + f(norm(x)) / sqrt(layers)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"layers\"; did you mean "
            "\"layer\"?\n"
            "  x = x + f(norm(x)) / sqrt(layers)\n"
            "                            ^");
  EXPECT_EQ(Error("let: \"alpha = 2\" each: \"x = x + alhpa * f(x)\""),
            "m.pbtxt:4:18: placement \"p\", each, attention: unknown name \"alhpa\"; did you mean "
            "\"alpha\"?\n"
            "  x = x + alhpa * f(x)\n"
            "          ^");
  EXPECT_EQ(Error("learned { name: \"gate\" } each: \"x = x + gates * f(x)\""),
            "m.pbtxt:4:26: placement \"p\", each, attention: unknown name \"gates\"; did you mean "
            "\"gate\"?\n"
            "  x = x + gates * f(x)\n"
            "          ^");
  EXPECT_EQ(Error("each: \"hidden = norm(x)\" each: \"x = x + f(hiden)\""),
            "m.pbtxt:4:26: placement \"p\", each, attention: unknown name \"hiden\"; did you mean "
            "\"hidden\"?\n"
            "  x = x + f(hiden)\n"
            "            ^");
  EXPECT_EQ(Error("each: \"x = x + f(x) if layr > 1\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"layr\"; did you mean "
            "\"layer\"?\n"
            "  x = x + f(x) if layr > 1\n"
            "                  ^");
}

TEST(FormulaCheckTest, NamesAreSetBeforeTheyAreRead) {
  EXPECT_EQ(
      Error("each: \"x = x + f(h)\" each: \"h = norm(x)\""),
      "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"h\"; it is set further down\n"
      "  x = x + f(h)\n"
      "            ^");
  EXPECT_EQ(Error("each: \"h = norm(x) if layer > 1\" each: \"x = x + f(h)\""),
            "m.pbtxt:4:34: placement \"p\", each, attention: unknown name \"h\"; the condition "
            "under which it is set does not hold at layer 1, sublayer 1\n"
            "  x = x + f(h)\n"
            "            ^");
  EXPECT_EQ(Error("each: \"h = h + f(x)\" each: \"x = h\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: unknown name \"h\"; here there are x, "
            "and the model's dimensions\n"
            "  h = h + f(x)\n"
            "      ^");
}

TEST(FormulaCheckTest, LayerAndSublayerHaveValuesOnlyInTheirPlaces) {
  EXPECT_EQ(Error("each: \"x = x + f(x)\" end: \"x = x / layer\""),
            "m.pbtxt:4:22: placement \"p\", end: unknown name \"layer\"; it has a value only in "
            "\"each\", in \"block\" and inside sublayers\n"
            "  x = x / layer\n"
            "          ^");
  EXPECT_EQ(Error("begin: \"x = x / sublayer\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", begin: unknown name \"sublayer\"; it has a value only "
            "in \"each\" and inside sublayers\n"
            "  x = x / sublayer\n"
            "          ^");
  EXPECT_EQ(Error("block: \"x = x + attention(x) / sublayer + mlp(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: unknown name \"sublayer\"; it has a value only "
            "in \"each\" and inside sublayers\n"
            "  x = x + attention(x) / sublayer + mlp(x)\n"
            "                         ^");
  EXPECT_EQ(Error("let: \"depth = sqrt(layer)\" each: \"x = x + f(x)\" end: \"x = x / depth\""),
            "m.pbtxt:4:1: unknown scalar \"layer\"; it has a value only in \"each\", in \"block\" "
            "and inside sublayers\n"
            "  depth = sqrt(layer)\n"
            "               ^");
  EXPECT_EQ(Error("let: \"depth = sqrt(layer)\" each: \"x = x + f(x) / depth\""), "no error");
  EXPECT_EQ(
      Error("each: \"x = x + f(x)\""
            "inside { point: \"mlp.hidden\" rule: \"hidden = hidden / (layer * sublayer)\" }"),
      "no error");
}

TEST(FormulaCheckTest, EverySublayerIsCalledOnce) {
  EXPECT_EQ(Error("each: \"x = norm(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the sublayer f (attention) is never "
            "called; its weights would be dead\n"
            "  x = norm(x)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"x = x + f(x) + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: the sublayer f is called twice; its "
            "keys and values would be cached twice\n"
            "  x = x + f(x) + f(x)\n"
            "                 ^");
  EXPECT_EQ(Error("each: \"y = f(x)\" each: \"x = x + f(y)\""),
            "m.pbtxt:4:18: placement \"p\", each, attention: the sublayer f is called twice; its "
            "keys and values would be cached twice\n"
            "  x = x + f(y)\n"
            "          ^");
  EXPECT_EQ(Error("block: \"x = x + attention(norm(x))\""),
            "m.pbtxt:4:1: placement \"p\", block: the sublayer mlp is never called; its weights "
            "would be dead\n"
            "  x = x + attention(norm(x))\n"
            "  ^");
  EXPECT_EQ(Error("block: \"x = x + attention(x) + mlp(x) + mlp(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: the sublayer mlp is called twice; its keys and "
            "values would be cached twice\n"
            "  x = x + attention(x) + mlp(x) + mlp(x)\n"
            "                                  ^");
  EXPECT_EQ(Error("block: \"x = x + attenton(norm(x))\" block: \"x = x + mlp(norm(x))\""),
            "m.pbtxt:4:1: placement \"p\", block: unknown function \"attenton\"; did you mean "
            "\"attention\"?\n"
            "  x = x + attenton(norm(x))\n"
            "          ^");
  EXPECT_EQ(Error("each: \"x = x + f(x) if layer < 2\""),
            "m.pbtxt:4:1: placement \"p\", each, layer 2 (attention): the sublayer f (attention) "
            "is never called at layer 2, sublayer 3; its weights would be dead\n"
            "  x = x + f(x) if layer < 2\n"
            "  ^");
  EXPECT_EQ(Error("block: \"x = x + attention(x)\" block: \"x = x + mlp(x) if layer != 2\""),
            "m.pbtxt:4:31: placement \"p\", block, layer 2: the sublayer mlp is never called at "
            "layer 2; its weights would be dead\n"
            "  x = x + mlp(x) if layer != 2\n"
            "  ^");
}

TEST(FormulaCheckTest, SublayersGoByTheNameOfTheSection) {
  EXPECT_EQ(Error("each: \"x = x + attention(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: in \"each\" the sublayer is called f; "
            "to call attention by its name use \"block\"\n"
            "  x = x + attention(x)\n"
            "          ^");
  EXPECT_EQ(Error("block: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", block: in \"block\" the sublayers are called by their "
            "names, not f\n"
            "  x = x + f(x)\n"
            "          ^");
  EXPECT_EQ(Error("each: \"x = x + f(x)\" end: \"x = f(x)\""),
            "m.pbtxt:4:22: placement \"p\", end: no sublayer can be called here: f\n"
            "  x = f(x)\n"
            "      ^");
  EXPECT_EQ(Error("begin: \"x = mlp(x)\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", begin: no sublayer can be called here: mlp\n"
            "  x = mlp(x)\n"
            "      ^");
  EXPECT_EQ(Error("each: \"x = x + f\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"f\" is a sublayer; call it: f(x)\n"
            "  x = x + f\n"
            "          ^");
  EXPECT_EQ(Error("each: \"x = x + f(x)\""
                  "inside { point: \"mlp.hidden\" rule: \"hidden = f(hidden)\" }"),
            "m.pbtxt:4:50: placement \"p\", inside mlp.hidden: no sublayer can be called here: f\n"
            "  hidden = f(hidden)\n"
            "           ^");
}

TEST(FormulaCheckTest, APlacementHasEachOrBlock) {
  EXPECT_EQ(Error("end: \"x = norm(x)\""),
            "m.pbtxt:3:3: placement \"p\": needs \"each\" or \"block\"");
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n  block: \"x = x + attention(x) + mlp(x)\""),
            "m.pbtxt:5:3: placement \"p\": has both \"each\" and \"block\"; use one of them");
}

TEST(FormulaCheckTest, TheResidualStreamIsSet) {
  EXPECT_EQ(Error("each: \"y = f(x)\" each: \"z = norm(y)\""),
            "m.pbtxt:4:18: placement \"p\": x is never set, nor another stream or indexed name; "
            "the residual stream would not change\n"
            "  z = norm(y)\n"
            "  ^");
  EXPECT_EQ(Error("block: \"h = attention(x)\" block: \"g = mlp(h)\""),
            "m.pbtxt:4:27: placement \"p\": x is never set, nor another stream or indexed name; "
            "the residual stream would not change\n"
            "  g = mlp(h)\n"
            "  ^");
}

TEST(FormulaCheckTest, WhatIsSetIsRead) {
  EXPECT_EQ(Error("begin: \"d = x\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", begin: the stream \"d\" is set and never read; \"end\" "
            "must use it\n"
            "  d = x\n"
            "  ^");
  EXPECT_EQ(Error("begin: \"d = x\" each: \"y = f(x)\" each: \"d = d + y\" each: \"x = x + y\""),
            "m.pbtxt:4:1: placement \"p\", begin: the stream \"d\" is set and never read; \"end\" "
            "must use it\n"
            "  d = x\n"
            "  ^");
  EXPECT_EQ(Error("each: \"h = norm(x)\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"h\" is set and never read\n"
            "  h = norm(x)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"h = norm(x)\" each: \"h = x\" each: \"x = x + f(h)\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"h\" is set and never read\n"
            "  h = norm(x)\n"
            "  ^");
  EXPECT_EQ(Error("begin: \"d = x\" each: \"x = f(d)\""),
            "m.pbtxt:4:16: placement \"p\", each, attention: nothing reads \"x\" at layer 1, "
            "sublayer 1, though it calls a sublayer, whose weights would be dead\n"
            "  x = f(d)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"k = norm(q)\" }"),
            "m.pbtxt:4:52: placement \"p\", inside attention.q: \"k\" is set and never read\n"
            "  k = norm(q)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"x = x + f(x)\" end: \"y = norm(x)\""),
            "m.pbtxt:4:22: placement \"p\", end: \"y\" is set and never read\n"
            "  y = norm(x)\n"
            "  ^");
}

TEST(FormulaCheckTest, AStreamThatLayersReadNeedsNoEnd) {
  EXPECT_EQ(Error("begin: \"e = x\" each: \"x = x + f(norm(x + e))\""), "no error");
}

TEST(FormulaCheckTest, StatementsCannotSetWhatIsNotTheirs) {
  EXPECT_EQ(Error("learned { name: \"gate\" } each: \"gate = f(x)\" each: \"x = x + gate\""),
            "m.pbtxt:4:26: placement \"p\", each, attention: \"gate\" is a learned value; a "
            "statement cannot set it\n"
            "  gate = f(x)\n"
            "  ^");
  EXPECT_EQ(Error("let: \"alpha = 2\" each: \"alpha = f(x)\" each: \"x = x + alpha\""),
            "m.pbtxt:4:18: placement \"p\", each, attention: \"alpha\" is a let; a statement "
            "cannot set it\n"
            "  alpha = f(x)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"n_layer = f(x)\" each: \"x = x + n_layer\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"n_layer\" is a scalar of the "
            "language; a statement cannot set it\n"
            "  n_layer = f(x)\n"
            "  ^");
  EXPECT_EQ(Error("begin: \"layer = x\" each: \"x = x + f(layer)\""),
            "m.pbtxt:4:1: placement \"p\", begin: \"layer\" is a scalar of the language; a "
            "statement cannot set it\n"
            "  layer = x\n"
            "  ^");
  EXPECT_EQ(Error("each: \"f = f(x)\" each: \"x = x + f\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"f\" is a sublayer; a statement "
            "cannot set it\n"
            "  f = f(x)\n"
            "  ^");
  EXPECT_EQ(
      Error("block: \"mlp = attention(x)\" block: \"x = mlp(x)\""),
      "m.pbtxt:4:1: placement \"p\", block: \"mlp\" is a sublayer; a statement cannot set it\n"
      "  mlp = attention(x)\n"
      "  ^");
  EXPECT_EQ(Error("each: \"sqrt = f(x)\" each: \"x = x + sqrt\""),
            "m.pbtxt:4:1: placement \"p\", each, attention: \"sqrt\" is a function; a statement "
            "cannot set it\n"
            "  sqrt = f(x)\n"
            "  ^");
}

TEST(FormulaCheckTest, ALetNeedsANameOfItsOwn) {
  EXPECT_EQ(Error("let: \"n_layer = 2\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: \"n_layer\" is a scalar of the language; a let needs a name of its own\n"
            "  n_layer = 2\n"
            "  ^");
  EXPECT_EQ(Error("let: \"sublayer = 2\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: \"sublayer\" is a scalar of the language; a let needs a name of its own\n"
            "  sublayer = 2\n"
            "  ^");
  EXPECT_EQ(Error("let: \"x = 2\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: \"x\" is the residual stream; a let needs a name of its own\n"
            "  x = 2\n"
            "  ^");
  EXPECT_EQ(Error("let: \"sqrt = 2\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: \"sqrt\" is a function of the language; a let needs a name of its own\n"
            "  sqrt = 2\n"
            "  ^");
  EXPECT_EQ(Error("let: \"a = 2\" let: \"a = 3\" each: \"x = x + f(x)\""),
            "m.pbtxt:4:14: \"a\" is already defined\n"
            "  a = 3\n"
            "  ^");
  EXPECT_EQ(Error("let: \"a = 2 if layer > 1\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:1: a let has no condition; put the condition on a statement\n"
            "  a = 2 if layer > 1\n"
            "                 ^");
}

TEST(FormulaCheckTest, ALearnedValueNeedsANameOfItsOwn) {
  EXPECT_EQ(Error("learned { name: \"x\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: learned \"x\": the name is that of the residual stream; give it another");
  EXPECT_EQ(Error("learned { name: \"d_model\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: learned \"d_model\": the name is that of a scalar of the language; give "
            "it another");
  EXPECT_EQ(Error("let: \"a = 2\" learned { name: \"a\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:14: learned \"a\": the name is that of a let; give it another");
  EXPECT_EQ(Error("learned { name: \"a\" } learned { name: \"a\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:23: learned \"a\" is already defined");
  EXPECT_EQ(Error("learned { name: \"2a\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: learned: \"2a\" is not a name");
  EXPECT_EQ(Error("learned { name: \"a b\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: learned: \"a b\" is not a name");
  EXPECT_EQ(Error("learned {} each: \"x = x + f(x)\""), "m.pbtxt:4:1: learned: \"\" is not a name");
}

TEST(FormulaCheckTest, ALearnedValueIsDescribedOneWay) {
  EXPECT_EQ(
      Error("learned { name: \"a\" per_channel: true per_head: true } each: \"x = x + f(x)\""),
      "m.pbtxt:4:1: learned \"a\": per_channel and per_head exclude each other");
  EXPECT_EQ(Error("learned { name: \"a\" init: 1 init_expression: \"2\" } each: \"x = x + f(x)\""),
            "m.pbtxt:4:1: learned \"a\": give init or init_expression, not both");
  EXPECT_EQ(Error("learned { name: \"a\" init_expression: \"1 +\" } each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:21: the formula ends where a value is expected\n"
            "  1 +\n"
            "     ^");
  EXPECT_EQ(Error("learned { name: \"a\" init_expression: \"1 / (layer - 1)\" }"
                  "each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:21: division by zero at layer 1, sublayer 1\n"
            "  1 / (layer - 1)\n"
            "    ^");
}

TEST(FormulaCheckTest, HeadsAreOnlyInsideAttention) {
  EXPECT_EQ(Error("learned { name: \"a\" per_head: true } each: \"x = x + a * f(x)\""),
            "m.pbtxt:4:38: placement \"p\", each, attention: \"a\" is learned per head; there are "
            "heads only inside attention\n"
            "  x = x + a * f(x)\n"
            "          ^");
  EXPECT_EQ(Error("slot { name: \"norm\" per_head: true } each: \"x = x + f(norm(x))\""),
            "m.pbtxt:4:38: placement \"p\", each, attention: the slot \"norm\" normalizes per "
            "head; there are heads only inside attention\n"
            "  x = x + f(norm(x))\n"
            "            ^");
  EXPECT_EQ(Error("slot { name: \"h_norm\" per_head: true } each: \"x = x + f(x)\""
                  "inside { point: \"mlp.hidden\" rule: \"hidden = h_norm(hidden)\" }"),
            "m.pbtxt:4:89: placement \"p\", inside mlp.hidden: the slot \"h_norm\" normalizes per "
            "head; there are heads only inside attention\n"
            "  hidden = h_norm(hidden)\n"
            "           ^");
}

TEST(FormulaCheckTest, APerHeadSlotIsApplied) {
  EXPECT_EQ(Error("slot { name: \"q_nrom\" per_head: true } each: \"x = x + f(x)\""
                  "inside { point: \"attention.q\" rule: \"q = q_norm(q)\" }"),
            "m.pbtxt:3:3: placement \"p\": slot \"q_nrom\" is declared, but nothing applies it; "
            "did you mean \"q_norm\"?");
}

TEST(FormulaCheckTest, SlotsNeedNorms) {
  const std::string model = absl::StrCat(kDims,
                                         "placement {\n"
                                         "  name: \"p\"\n"
                                         "  each: \"x = x + f(nrom(x))\"\n"
                                         "  end: \"x = norm(x)\"\n"
                                         "}\n"
                                         "block { placement: \"p\"");
  EXPECT_EQ(ErrorOf(absl::StrCat(model, " }")),
            "m.pbtxt:4:3: placement \"p\", each, attention: unknown function \"nrom\"; did you "
            "mean \"norm\"?\n"
            "  x = x + f(nrom(x))\n"
            "            ^");
  EXPECT_EQ(ErrorOf(absl::StrCat(model, " slot { name: \"norm\" norm: \"none\" } }")),
            "m.pbtxt:4:3: placement \"p\", each, attention: unknown function \"nrom\"; did you "
            "mean \"norm\"?\n"
            "  x = x + f(nrom(x))\n"
            "            ^");
  EXPECT_EQ(ErrorOf(absl::StrCat(model,
                                 " slot { name: \"norm\" norm: \"none\" }"
                                 " slot { name: \"nrom\" norm: \"none\" } }")),
            "no error");
}

TEST(FormulaCheckTest, BindingsNeedSlots) {
  const auto with_slot = [](absl::string_view placement, absl::string_view slot) {
    return ErrorOf(absl::StrCat(kDims, "block {\n  placement: \"", placement,
                                "\"\n  norm: \"rms_norm\"\n  slot { name: \"", slot,
                                "\" norm: \"none\" }\n}\n"));
  };
  EXPECT_EQ(with_slot("double", "norm_on"),
            "m.pbtxt:5:3: slot \"norm_on\": placement \"double\" has no such slot; did you mean "
            "\"norm_in\"?");
  EXPECT_EQ(with_slot("none", "norm"),
            "m.pbtxt:5:3: slot \"norm\": placement \"none\" has no such slot");
  EXPECT_EQ(with_slot("pre", "f"), "m.pbtxt:5:3: slot \"f\": placement \"pre\" has no such slot");
  EXPECT_EQ(with_slot("pre", ""), "m.pbtxt:5:3: slot \"\": placement \"pre\" has no such slot");
  EXPECT_EQ(with_slot("double", "norm_out"), "no error");
}

TEST(FormulaCheckTest, ASlotExistsEvenWhereAConditionKeepsItOut) {
  // Two layers have four sublayers: stream_norm is never applied.
  EXPECT_EQ(ErrorOf(absl::StrCat(kDims,
                                 "block { placement: \"swin_v2\" norm: \"rms_norm\""
                                 " slot { name: \"stream_norm\" norm: \"none\" } }")),
            "no error");
}

TEST(FormulaCheckTest, BlocksThatAlternateMayNameTheSlotsOfTheEnd) {
  const std::string block =
      "block { placement: \"pre\" slot { name: \"norm\" norm: \"rms_norm\" } }";
  EXPECT_EQ(ErrorOf(absl::StrCat(kDims, "layers { repeat: 2 ", block, block, " }")), "no error");
}

TEST(FormulaCheckTest, PointsHaveNames) {
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n"
                  "  inside { point: \"attention.query\" rule: \"q = norm(q)\" }"),
            "m.pbtxt:5:12: inside: unknown point \"attention.query\"; the points are attention.q, "
            "attention.k, attention.v, attention.q_rot, attention.k_rot, attention.context, "
            "mlp.gate, mlp.up, mlp.hidden, head.logits; did you mean \"attention.q\"?");
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n  inside { rule: \"q = norm(q)\" }"),
            "m.pbtxt:5:12: inside: point is missing; the points are attention.q, attention.k, "
            "attention.v, attention.q_rot, attention.k_rot, attention.context, mlp.gate, mlp.up, "
            "mlp.hidden, head.logits");
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n  inside { point: \"attention.q\" }"),
            "m.pbtxt:5:12: inside attention.q has no rule");
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n"
                  "  inside { point: \"attention.q\" rule: \"q = norm(x)\" }"),
            "m.pbtxt:5:33: placement \"p\", inside attention.q: \"q\" is replaced before anything "
            "reads it\n"
            "  q = norm(x)\n"
            "  ^");
  EXPECT_EQ(Error("each: \"x = x + f(x)\"\n"
                  "  inside { point: \"head.logits\" rule: \"logits = logits / layer\" }"),
            "m.pbtxt:5:33: placement \"p\", inside head.logits: unknown name \"layer\"; it has a "
            "value only in \"each\", in \"block\" and inside sublayers\n"
            "  logits = logits / layer\n"
            "                    ^");
}

TEST(FormulaCheckTest, SectionsHaveALimit) {
  std::string fields = "each: \"x = x + f(x)\"\n";
  for (int i = 0; i < 65; ++i) absl::StrAppend(&fields, "each: \"x = norm(x)\"\n");
  EXPECT_EQ(Error(fields), "m.pbtxt:4:1: each has 66 statements; at most 64");
}

// A placement whose layers carry a second stream, and one that knows nothing of it.
constexpr char kTwoPlacements[] =
    "placement {\n"
    "  name: \"dual\"\n"
    "  begin: \"d = x\"\n"
    "  each: \"y = f(x)\" each: \"d = d + y\" each: \"x = norm(x + y)\"\n"
    "  end: \"x = x + norm(d)\"\n"
    "}\n"
    "placement {\n"
    "  name: \"plain\"\n"
    "  each: \"x = x + f(norm(x))\"\n"
    "}\n";

std::string Mixed(absl::string_view first, absl::string_view second) {
  return ErrorOf(absl::StrCat("n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n",
                              kTwoPlacements, "layers { block { placement: \"", first,
                              "\" norm: \"rms_norm\" } }\nlayers { block { placement: \"", second,
                              "\" norm: \"rms_norm\" } }\n"));
}

TEST(MixedPlacementsTest, AStreamBeginsInTheFirstLayersPlacement) {
  EXPECT_EQ(
      Mixed("plain", "dual"),
      "m.pbtxt:4:3: placement \"dual\" (m.pbtxt:13:10) reads a stream \"d\" that never begins: the "
      "begin that runs is that of the first layer's placement, \"plain\"; let that one set it too\n"
      "  d = x\n"
      "  ^");
}

TEST(MixedPlacementsTest, AStreamEndsInTheLastLayersPlacement) {
  EXPECT_EQ(
      Mixed("dual", "plain"),
      "m.pbtxt:4:3: placement \"dual\", begin: the stream \"d\" is set and never read; \"end\" "
      "must use it (the end that runs is that of the last layer's placement, \"plain\")\n"
      "  d = x\n"
      "  ^");
}

TEST(MixedPlacementsTest, PlacementsWithTheSameStreamsMix) {
  EXPECT_EQ(Mixed("dual", "dual"), "no error");
  EXPECT_EQ(Mixed("plain", "plain"), "no error");
  EXPECT_EQ(Mixed("post", "pre"), "no error");
  EXPECT_EQ(Mixed("pre", "bloom"), "no error");  // its begin sets x only, and does not run
}

}  // namespace
}  // namespace plumb
