// Descriptions that are wrong, and what is said of them.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

// A model of these dimensions with a plain block.
std::string DimsError(absl::string_view dims) { return ErrorOf(absl::StrCat(dims, "\n", kBlock)); }

TEST(ResolveErrorTest, TextMustBeProtobufText) {
  EXPECT_EQ(ErrorOf("n_layer 4"), "m.pbtxt:1:9: expected \":\" after n_layer, found \"4\"");
  EXPECT_EQ(ErrorOf("n_layer: \"four\""),
            "m.pbtxt:1:10: expected a whole number for n_layer, found the text \"four\"");
  EXPECT_EQ(ErrorOf("n_layer: 99999999999"),
            "m.pbtxt:1:10: n_layer: 99999999999 is not a number of 32 bits");
  EXPECT_EQ(ErrorOf("n_layer: 1.5"),
            "m.pbtxt:1:10: expected a whole number for n_layer, found \"1.5\"");
  EXPECT_EQ(ErrorOf("n_layer: 1\nn_layer: 2"),
            "m.pbtxt:2:1: n_layer is given twice, first in line 1");
  EXPECT_EQ(ErrorOf("block { placement: \"pre\""),
            "m.pbtxt:1:25: the text ends too early; is a \"}\" missing?");
  EXPECT_EQ(ErrorOf("name: \"unfinished"),
            "m.pbtxt:1:7: no \" ends this text; it has to, in the same line");
  EXPECT_EQ(ErrorOf("name: \"\\377\""), "m.pbtxt:1:1: name is not UTF-8 text");
}

TEST(ResolveErrorTest, FieldsMustBeKnown) {
  EXPECT_EQ(ErrorOf("n_layrs: 4"),
            "m.pbtxt:1:1: unknown field \"n_layrs\" in Model; did you mean \"n_layer\"?");
  EXPECT_EQ(ErrorOf("n_layer: 4\nblock {\n  placment: \"pre\"\n}"),
            "m.pbtxt:3:3: unknown field \"placment\" in Block; did you mean \"placement\"?");
  EXPECT_EQ(ErrorOf("mlp { dropout: 0.1 }"),
            "m.pbtxt:1:7: unknown field \"dropout\" in Mlp; it has activation, gated, bias, d_ff");
}

TEST(ResolveErrorTest, ValuesOfEnumsMustBeKnown) {
  EXPECT_EQ(ErrorOf("mlp { activation: GELU_ERF }"),
            "m.pbtxt:1:19: unknown value \"GELU_ERF\" for activation; it is one of RELU, GELU, "
            "GELU_TANH, SILU");
  EXPECT_EQ(ErrorOf("positions { kind: rope }"),
            "m.pbtxt:1:19: unknown value \"rope\" for kind; it is one of LEARNED, ROPE, NONE, "
            "ALIBI");
}

TEST(ResolveErrorTest, AllUnknownFieldsComeAtOnce) {
  EXPECT_EQ(ErrorOf("n_layrs: 4\nblok { placement: \"pre\" }\nmlp { gatd: true }\n"),
            "m.pbtxt:1:1: unknown field \"n_layrs\" in Model; did you mean \"n_layer\"?\n"
            "m.pbtxt:2:1: unknown field \"blok\" in Model; did you mean \"block\"?\n"
            "m.pbtxt:3:7: unknown field \"gatd\" in Mlp; did you mean \"gated\"?");
}

TEST(ResolveErrorTest, OfUnknownValuesTheFirstComes) {
  EXPECT_EQ(
      ErrorOf("mlp { activation: X }\npositions { kind: Y }\n"),
      "m.pbtxt:1:19: unknown value \"X\" for activation; it is one of RELU, GELU, GELU_TANH, SILU");
}

TEST(ResolveErrorTest, AllMissingDimensionsComeAtOnce) {
  EXPECT_EQ(DimsError(""),
            "m.pbtxt: n_layer is missing\n"
            "m.pbtxt: n_head is missing\n"
            "m.pbtxt: d_model is missing\n"
            "m.pbtxt: context_length is missing\n"
            "m.pbtxt: vocab_size is missing; only training can take it from the data");
}

TEST(ResolveErrorTest, DimensionsAreInRange) {
  EXPECT_EQ(
      DimsError("n_layer: -3\nn_head: -1\nn_kv_head: -1\nd_model: -8\nd_ff: -1\nhead_dim: -2\n"
                "vocab_size: -1\ncontext_length: -1"),
      "m.pbtxt:1:1: n_layer: -3 is not in 1..4096\n"
      "m.pbtxt:2:1: n_head: -1 is not in 1..16777216\n"
      "m.pbtxt:3:1: n_kv_head: -1 is not in 1..16777216\n"
      "m.pbtxt:4:1: d_model: -8 is not in 1..16777216\n"
      "m.pbtxt:5:1: d_ff: -1 is not in 1..16777216\n"
      "m.pbtxt:8:1: context_length: -1 is not in 1..16777216\n"
      "m.pbtxt:7:1: vocab_size: -1 is not in 1..16777216\n"
      "m.pbtxt:6:1: head_dim: -2 is not in 1..16777216");
  EXPECT_EQ(DimsError("n_layer: 5000 n_head: 2 d_model: 8 vocab_size: 11 context_length: 4"),
            "m.pbtxt:1:1: n_layer: 5000 is not in 1..4096");
  EXPECT_EQ(DimsError("n_layer: 2 n_head: 2 d_model: 20000000 vocab_size: 11 context_length: 4"),
            "m.pbtxt:1:22: d_model: 20000000 is not in 1..16777216");
}

TEST(ResolveErrorTest, HeadsDivideWhatTheyShare) {
  EXPECT_EQ(DimsError("n_layer: 2 n_head: 3\nd_model: 8 vocab_size: 11 context_length: 4"),
            "m.pbtxt:1:12: n_head: 3 does not divide d_model 8; say head_dim if that is meant");
  EXPECT_EQ(
      DimsError("n_layer: 2 n_head: 4\nn_kv_head: 3 d_model: 8 vocab_size: 11 context_length: 4"),
      "m.pbtxt:2:1: n_kv_head: 3 does not divide n_head 4");
  EXPECT_EQ(
      DimsError("n_layer: 2 n_head: 2\nn_kv_head: 4 d_model: 8 vocab_size: 11 context_length: 4"),
      "m.pbtxt:2:1: n_kv_head: 4 does not divide n_head 2");
  EXPECT_EQ(
      DimsError("n_layer: 2 n_head: 3\nhead_dim: 4 d_model: 8 vocab_size: 11 context_length: 4"),
      "no error");
}

TEST(ResolveErrorTest, AZeroThatIsSaidIsNotTheDefault) {
  EXPECT_EQ(DimsError("n_layer: 2 n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
                      "n_kv_head: 0\nd_ff: 0\nhead_dim: 0"),
            "m.pbtxt:2:1: n_kv_head: 0 is not in 1..16777216\n"
            "m.pbtxt:3:1: d_ff: 0 is not in 1..16777216\n"
            "m.pbtxt:4:1: head_dim: 0 is not in 1..16777216");
}

TEST(ResolveErrorTest, AModelHasOneBlockOrGroupsOfLayers) {
  EXPECT_EQ(
      FirstLine(ResolveError("")),
      "m.pbtxt: block is missing; it has the form block { placement: \"...\" norm: \"...\" }");
  EXPECT_EQ(ResolveError(absl::StrCat("layers { repeat: 2 ", kBlock, "}\n", kBlock)),
            "m.pbtxt:4:1: block: the model has layers; give one of the two");
  EXPECT_EQ(ResolveError(absl::StrCat("layers { repeat: 3 ", kBlock, "}\n")),
            "m.pbtxt:1:1: n_layer: 2, but the groups in layers have 3 together");
  EXPECT_EQ(ResolveError("layers { repeat: 2 }"), "m.pbtxt:2:1: layers[0] has no block");
  EXPECT_EQ(ResolveError(absl::StrCat("layers { repeat: -2 ", kBlock, kBlock, "}")),
            "m.pbtxt:2:10: repeat: -2 is not in 1..4096");
  EXPECT_EQ(ResolveError(absl::StrCat("layers { repeat: 0 ", kBlock, kBlock, "}")),
            "m.pbtxt:2:10: repeat: 0 is not in 1..4096");
  EXPECT_EQ(ResolveError(absl::StrCat("layers { repeat: 1 ", kBlock, "}\nlayers { repeat: 1 ",
                                      kBlock, kBlock, "}\n")),
            "m.pbtxt:4:10: layers[1]: repeat: 1 leaves block[1] without a layer");
}

TEST(ResolveErrorTest, PlacementsMustBeKnown) {
  const std::string misspelt = ResolveError("block { placement: \"prenorm\" norm: \"rms_norm\" }");
  EXPECT_EQ(FirstLine(misspelt),
            "m.pbtxt:2:9: unknown placement \"prenorm\"; did you mean \"pre\"?");
  EXPECT_NE(misspelt.find("\n  known: "), std::string::npos);
  EXPECT_NE(misspelt.find(" pre, "), std::string::npos);
  EXPECT_EQ(FirstLine(ResolveError("block { placement: \"../pre\" norm: \"rms_norm\" }")),
            "m.pbtxt:2:9: unknown placement \"../pre\"");
  EXPECT_EQ(FirstLine(ResolveError("block { norm: \"rms_norm\" }")),
            "m.pbtxt:2:1: block.placement is missing");
  EXPECT_EQ(FirstLine(ResolveError("layers { repeat: 2 block { norm: \"rms_norm\" } }")),
            "m.pbtxt:2:20: layers[0].block[0].placement is missing");
}

TEST(ResolveErrorTest, NormsMustBeKnown) {
  EXPECT_EQ(FirstLine(ResolveError("block { placement: \"pre\" norm: \"rms_nrm\" }")),
            "m.pbtxt:2:26: block.norm: unknown norm \"rms_nrm\"; did you mean \"rms_norm\"?");
  EXPECT_EQ(FirstLine(ResolveError("norm { name: \"mine\" plugin: \"rms_norm\" }\n"
                                   "block { placement: \"pre\" norm: \"mien\" }")),
            "m.pbtxt:3:26: block.norm: unknown norm \"mien\"; did you mean \"mine\"?");
  EXPECT_EQ(FirstLine(ResolveError("norm {\n  name: \"mine\"\n  plugin: \"rmsnorm\"\n}\n"
                                   "block { placement: \"pre\" norm: \"mine\" }")),
            "m.pbtxt:4:3: unknown norm plugin \"rmsnorm\"; did you mean \"rms_norm\"?");
  EXPECT_EQ(ResolveError("norm { name: \"mine\" }\nblock { placement: \"pre\" norm: \"mine\" }"),
            "m.pbtxt:2:8: norm \"mine\" names no plugin");
  EXPECT_EQ(ResolveError("block {\n  placement: \"pre\"\n  slot { name: \"norm\" }\n}"),
            "m.pbtxt:4:3: block.slot \"norm\": names no norm");
  EXPECT_EQ(
      FirstLine(ResolveError("norm { name: \"a b\" plugin: \"rms_norm\" }")),
      "m.pbtxt:2:1: norm: \"a b\" is not a name; use letters, digits, \"_\", \"-\" and \".\"");
}

TEST(ResolveErrorTest, AttributesFitTheirPlugin) {
  const auto attr = [](absl::string_view text) {
    return ResolveError(absl::StrCat("norm {\n  name: \"n\"\n  plugin: \"rms_norm\"\n  ", text,
                                     "\n}\nblock { placement: \"pre\" norm: \"n\" }"));
  };
  EXPECT_EQ(attr("attr { name: \"eps\" number: -1 }"),
            "m.pbtxt:5:3: norm \"n\": rms_norm: attribute \"eps\" must be in [0, 1], not -1");
  EXPECT_EQ(
      attr("attr { name: \"eps\" text: \"small\" }"),
      "m.pbtxt:5:3: norm \"n\": rms_norm: attribute \"eps\" wants number, not the text \"small\"");
  EXPECT_EQ(attr("attr { name: \"esp\" number: 1e-6 }"),
            "m.pbtxt:5:3: norm \"n\": rms_norm: unknown attribute \"esp\"; did you mean \"eps\"?");
  EXPECT_EQ(attr("attr { name: \"eps\" }"),
            "m.pbtxt:5:3: attr \"eps\" has no value; give number, flag or text");
  EXPECT_EQ(attr("attr { name: \"eps\" number: 1 }\n  attr { name: \"eps\" number: 2 }"),
            "m.pbtxt:6:3: attr \"eps\" is given twice");
}

TEST(ResolveErrorTest, NamesAreGivenOnce) {
  EXPECT_EQ(
      ResolveError("norm { name: \"n\" plugin: \"none\" }\nnorm { name: \"n\" plugin: \"none\" }"),
      "m.pbtxt:3:1: norm \"n\" is defined twice");
  EXPECT_EQ(ResolveError("placement { name: \"p\" }\nplacement { name: \"p\" }"),
            "m.pbtxt:3:1: placement \"p\" is defined twice");
  EXPECT_EQ(
      ResolveError("placement { each: \"x = x + f(x)\" }"),
      "m.pbtxt:2:1: placement: \"\" is not a name; use letters, digits, \"_\", \"-\" and \".\"");
  EXPECT_EQ(ResolveError("block {\n  placement: \"pre\"\n  slot { name: \"norm\" norm: \"none\" }\n"
                         "  slot { name: \"norm\" norm: \"none\" }\n}"),
            "m.pbtxt:5:3: block.slot \"norm\" is given twice");
}

TEST(ResolveErrorTest, SublayersHaveKindsAndNames) {
  const auto sublayers = [](absl::string_view text) {
    return ResolveError(
        absl::StrCat("block {\n  placement: \"pre\" norm: \"none\"\n  ", text, "\n}"));
  };
  EXPECT_EQ(sublayers("sublayer { name: \"a\" }"),
            "m.pbtxt:4:3: block.sublayer[0]: give attention {}, mlp {}, experts {..} or conv {}");
  EXPECT_EQ(sublayers("sublayer { mlp {} }\n  sublayer { mlp {} }"),
            "m.pbtxt:5:3: block.sublayer[1]: the name \"mlp\" is taken; give it another");
  EXPECT_EQ(sublayers("sublayer { name: \"f\" mlp {} }"),
            "m.pbtxt:4:3: block.sublayer[0]: the name \"f\" is taken; give it another");
  EXPECT_EQ(sublayers("sublayer { name: \"my mlp\" mlp {} }"),
            "m.pbtxt:4:3: block.sublayer[0]: \"my mlp\" cannot be its name; a formula must be able "
            "to call it");
  EXPECT_EQ(sublayers("sublayer { name: \"sqrt\" mlp {} }"),
            "m.pbtxt:4:3: block.sublayer[0]: \"sqrt\" cannot be its name; a formula must be able "
            "to call it");
  EXPECT_EQ(sublayers("sublayer { name: \"layer\" mlp {} }"),
            "m.pbtxt:4:3: block.sublayer[0]: \"layer\" cannot be its name; a formula must be able "
            "to call it");
}

TEST(ResolveErrorTest, BidirectionalModelsHaveNoWindow) {
  const auto model = [](absl::string_view fields) {
    return ResolveError(absl::StrCat(fields, "\n", kBlock));
  };
  EXPECT_EQ(model("bidirectional: true attention { window: \"0\" }"), "no error");
  EXPECT_EQ(model("bidirectional: true attention { window: \"3 * (layer == 2)\" }"),
            "m.pbtxt:2:33: window: 3 at layer 2, sublayer 3 looks back from a token, and the model "
            "is bidirectional; leave one of the two out\n"
            "  3 * (layer == 2)\n"
            "    ^");
}

TEST(ResolveErrorTest, TokenTypesAreANumberOfRows) {
  const auto model = [](absl::string_view fields) {
    return ResolveError(absl::StrCat(fields, "\n", kBlock));
  };
  EXPECT_EQ(model("token_types: 2"), "no error");
  EXPECT_EQ(model("token_types: -1"), "m.pbtxt:2:1: token_types: -1 is not in 0..16777216");
  EXPECT_EQ(model("token_types: 20000000"),
            "m.pbtxt:2:1: token_types: 20000000 is not in 0..16777216");
  EXPECT_EQ(FirstLine(model("embedding { name: \"type\" }")),
            "m.pbtxt:2:13: embedding \"type\": there is one already; give it another name");
}

TEST(ResolveErrorTest, FieldsOfAttentionTakeNumbersThatMeanSomething) {
  const auto attention = [](absl::string_view field) {
    return ResolveError(absl::StrCat("attention { ", field, " }\n", kBlock));
  };
  EXPECT_EQ(attention("score_cap: \"50\" window: \"layer * 2\" sinks: true"), "no error");
  EXPECT_EQ(attention("score_cap: \"0\" window: \"1000000 * d_ff\""), "no error");
  EXPECT_EQ(attention("score_cap: \"layer - 2\""),
            "m.pbtxt:2:13: score_cap: -1 at layer 1, sublayer 1 must be a bound above 0, or 0 for "
            "none\n"
            "  layer - 2\n"
            "        ^");
  EXPECT_EQ(FirstLine(attention("score_cap: \"1e39\"")),
            "m.pbtxt:2:13: score_cap: 1e+39 at layer 1, sublayer 1 must be a bound above 0, or 0 "
            "for none");
  EXPECT_EQ(
      attention("window: \"3 / layer\""),
      "m.pbtxt:2:13: window: 1.5 at layer 2, sublayer 3 must be a whole number of tokens from "
      "1 on, or 0 for all of them\n"
      "  3 / layer\n"
      "    ^");
  EXPECT_EQ(FirstLine(attention("window: \"-4\"")),
            "m.pbtxt:2:13: window: -4 at layer 1, sublayer 1 must be a whole number of tokens from "
            "1 on, or 0 for all of them");
  EXPECT_EQ(FirstLine(attention("window: \"contex_length\"")),
            "m.pbtxt:2:13: unknown scalar \"contex_length\"; did you mean \"context_length\"?");
  EXPECT_EQ(FirstLine(attention("window: \"4 / (layer - 1)\"")),
            "m.pbtxt:2:13: division by zero at layer 1, sublayer 1");
  EXPECT_EQ(attention("windw: \"4\""),
            "m.pbtxt:2:13: unknown field \"windw\" in Attention; did you mean \"window\"?");
  EXPECT_EQ(FirstLine(attention("window: 4")),
            "m.pbtxt:2:21: expected text in quotes for window, found \"4\"");
  EXPECT_EQ(attention("sinks: true scale: \"layer\""), "no error");
}

TEST(ResolveErrorTest, ConvolutionsTakeAWidthAndABias) {
  const auto conv = [](absl::string_view fields) {
    return ErrorOf(absl::StrCat(kDims,
                                "block { placement: \"pre\" norm: \"rms_norm\"\n"
                                "  sublayer { conv { ",
                                fields, " } } }"));
  };
  EXPECT_EQ(conv(""), "no error");
  EXPECT_EQ(conv("width: 256 bias: true"), "no error");
  EXPECT_EQ(conv("width: 0"), "m.pbtxt:3:21: width: 0 is not in 1..256");
  EXPECT_EQ(conv("width: 257"), "m.pbtxt:3:21: width: 257 is not in 1..256");
  EXPECT_EQ(conv("widht: 3"),
            "m.pbtxt:3:21: unknown field \"widht\" in Conv; did you mean \"width\"?");
  EXPECT_EQ(conv("} mlp { gated: true"), "m.pbtxt:3:23: mlp and conv (line 3) exclude each other");
}

TEST(ResolveErrorTest, ExpertsTakeNumbersThatMeanSomething) {
  const auto experts = [](absl::string_view fields, absl::string_view block = "") {
    return ResolveError(absl::StrCat("block { placement: \"pre\" norm: \"rms_norm\" ", block,
                                     "\n  sublayer { attention {} }\n", "  sublayer { experts { ",
                                     fields, " } }\n}"));
  };
  const std::string two_of_four = "n_expert: \"4\" top_k: \"2\" ";
  EXPECT_EQ(experts(two_of_four + "shared_d_ff: \"0\" balance_loss: \"0\" scale: \"-1\""),
            "no error");
  EXPECT_EQ(experts("top_k: \"2\""),
            "m.pbtxt:4:3: experts: n_expert is missing; it has the form experts { n_expert: \"8\" "
            "top_k: \"2\" }");
  EXPECT_EQ(experts("n_expert: \"2\""),
            "m.pbtxt:4:3: experts: top_k is missing; it has the form experts { n_expert: \"8\" "
            "top_k: \"2\" }");
  EXPECT_EQ(experts("n_expert: \"4\" top_k: \"layer + 3\""),
            "m.pbtxt:4:38: top_k: 5 at layer 2, sublayer 4 is no whole number in 1..4\n"
            "  layer + 3\n"
            "        ^");
  EXPECT_EQ(experts("n_expert: \"2.5\" top_k: \"2\""),
            "m.pbtxt:4:24: n_expert: 2.5 at layer 1, sublayer 2 is no whole number in 1..65536\n"
            "  2.5\n"
            "  ^");
  EXPECT_EQ(experts("n_expert: \"1e9\" top_k: \"2\""),
            "m.pbtxt:4:24: n_expert: 1e+09 at layer 1, sublayer 2 is no whole number in 1..65536\n"
            "  1e9\n"
            "  ^");
  EXPECT_EQ(experts(two_of_four + "d_ff: \"0\""),
            "m.pbtxt:4:49: d_ff: 0 at layer 1, sublayer 2 is no whole number in 1..16777216\n"
            "  0\n"
            "  ^");
  EXPECT_EQ(experts(two_of_four + "balance_loss: \"-1\""),
            "m.pbtxt:4:49: balance_loss: -1 at layer 1, sublayer 2 must be a coefficient above 0, "
            "or 0 for no such loss\n"
            "  -1\n"
            "  ^");
  EXPECT_EQ(experts(two_of_four + "shared_gate: true"),
            "m.pbtxt:4:49: shared_gate: there is no shared expert; shared_d_ff: \"WIDTH\" makes "
            "one");
  EXPECT_EQ(experts(two_of_four + "router: SOFTMAX_OF_TOPK"),
            "m.pbtxt:4:57: unknown value \"SOFTMAX_OF_TOPK\" for router; it is one of "
            "SOFTMAX_OF_TOP_K, SOFTMAX, SIGMOID");
  EXPECT_EQ(experts(two_of_four, "inside { point: \"mlp.hidden\" rule: \"hidden = 2 * hidden\" }"),
            "m.pbtxt:2:52: inside mlp.hidden: the block has experts and no MLP; statements inside "
            "experts are not possible");
}

TEST(ResolveErrorTest, AnMlpsWidthIsAWholeNumber) {
  EXPECT_EQ(ResolveError(absl::StrCat("mlp { d_ff: \"4 * layer\" }\n", kBlock)), "no error");
  EXPECT_EQ(ResolveError(absl::StrCat("mlp { d_ff: \"layer / 2\" }\n", kBlock)),
            "m.pbtxt:2:7: d_ff: 0.5 at layer 1, sublayer 2 is no whole number in 1..16777216\n"
            "  layer / 2\n"
            "        ^");
}

TEST(ResolveErrorTest, SharingHasANameOrAGroup) {
  const auto block = [](absl::string_view fields) {
    return ResolveError(
        absl::StrCat("block { placement: \"pre\" norm: \"rms_norm\"\n  ", fields, " }"));
  };
  EXPECT_EQ(block("share: \"all\" own_norms: true"), "no error");
  EXPECT_EQ(block("share: \"two words\""), "m.pbtxt:3:3: block.share: \"two words\" is not a name");
  EXPECT_EQ(
      block("own_norms: true"),
      "m.pbtxt:3:3: block.own_norms: the block shares no parameters; it belongs beside share: "
      "\"NAME\", or in layers { share: true .. }");
  EXPECT_EQ(block("shared: \"all\""),
            "m.pbtxt:3:3: unknown field \"shared\" in Block; did you mean \"share\"?");
  EXPECT_EQ(
      ErrorOf("n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
              "layers { repeat: 2 share: true block { placement: \"pre\" norm: \"rms_norm\"\n"
              "  share: \"all\" } }"),
      "m.pbtxt:3:3: layers[0].block[0].share: the layers around it share already; give one of "
      "the two");
}

TEST(ResolveErrorTest, TablesOverTokensHaveANameAWidthAndAReader) {
  const auto table = [](absl::string_view fields, absl::string_view rule) {
    return ErrorOf(absl::StrCat(kDims, "embedding { ", fields, " }\n",
                                "placement { name: \"p\" let: \"a = 1\" learned { name: \"g\" }",
                                " each: \"x = a * x + g * f(x)\" begin: \"x = ", rule, "\" }\n",
                                "block { placement: \"p\" }"));
  };
  EXPECT_EQ(table("name: \"e\"", "x + e"), "no error");
  EXPECT_EQ(table("", "x"), "m.pbtxt:2:1: embedding: \"\" is not a name");
  EXPECT_EQ(table("name: \"1e\"", "x"), "m.pbtxt:2:13: embedding: \"1e\" is not a name");
  EXPECT_EQ(table("name: \"e\"", "2 * x"),
            "m.pbtxt:2:13: embedding \"e\" is never read; a formula reads it by its name: e");
  EXPECT_EQ(
      table("name: \"x\"", "2 * x"),
      "m.pbtxt:2:13: embedding \"x\": the name is that of the residual stream; give it another");
  EXPECT_EQ(
      table("name: \"layer\"", "2 * x"),
      "m.pbtxt:2:13: embedding \"layer\": the name is that of a scalar of the language; give it "
      "another");
  EXPECT_EQ(table("name: \"token\"", "2 * x"),
            "m.pbtxt:2:13: embedding \"token\": there is one already; give it another name");
  EXPECT_EQ(table("name: \"e\" } embedding { name: \"e\"", "x + e"),
            "m.pbtxt:2:37: embedding \"e\": there is one already; give it another name");
  EXPECT_EQ(table("name: \"a\"", "x + a"),
            "m.pbtxt:2:13: embedding \"a\": the name is that of a let of placement \"p\" or its "
            "block; give it another");
  EXPECT_EQ(table("name: \"g\"", "g * x"),
            "m.pbtxt:2:13: embedding \"g\": the name is that of a learned value of placement \"p\" "
            "or its block; give it another");
  EXPECT_EQ(table("name: \"mlp\"", "x + mlp"),
            "m.pbtxt:2:13: embedding \"mlp\": the name is that of a sublayer of placement \"p\" or "
            "its block; give it another");
  EXPECT_EQ(FirstLine(table("name: \"e\" width: \"d_model / 3\"", "x + e")),
            "m.pbtxt:2:23: embedding \"e\": width 2.66667 is no whole number in 1..16777216");
  EXPECT_EQ(FirstLine(table("name: \"e\" width: \"layer\"", "x + e")),
            "m.pbtxt:2:23: unknown scalar \"layer\"; it has a value only in \"each\", in \"block\" "
            "and inside sublayers");
  EXPECT_EQ(FirstLine(table("name: \"e\" per_layer: true", "x + e")),
            "m.pbtxt:3:87: placement \"p\", begin: \"e\" is a table a layer; write e[layer]");
  EXPECT_EQ(FirstLine(table("name: \"ve\"", "x + vee")),
            "m.pbtxt:3:87: placement \"p\", begin: unknown name \"vee\"; did you mean \"ve\"?");
}

TEST(ResolveErrorTest, ExpressionsOutsideFormulasHavePlacesToo) {
  EXPECT_EQ(ResolveError(absl::StrCat("embedding_scale: \"sqrt(\"\n", kBlock)),
            "m.pbtxt:2:1: the formula ends where a value is expected\n"
            "  sqrt(\n"
            "       ^");
  EXPECT_EQ(ResolveError(absl::StrCat("attention { scale: \"1 /\" }\n", kBlock)),
            "m.pbtxt:2:13: the formula ends where a value is expected\n"
            "  1 /\n"
            "     ^");
  EXPECT_EQ(
      ResolveError(absl::StrCat("init { match: \"*\" normal { std: \"0.02 *\" } }\n", kBlock)),
      "m.pbtxt:2:28: the formula ends where a value is expected\n"
      "  0.02 *\n"
      "        ^");
  EXPECT_EQ(ResolveError(absl::StrCat("init { normal {} }\n", kBlock)),
            "m.pbtxt: init: match is missing; it names weights, \"*\" for all");
  EXPECT_EQ(ResolveError(absl::StrCat("init { match: \"*\" }\n", kBlock)),
            "m.pbtxt:2:8: init: needs a distribution (normal, truncated_normal, uniform, "
            "xavier_normal, xavier_uniform, kaiming_uniform, constant), a scale, or both");
}

}  // namespace
}  // namespace plumb
