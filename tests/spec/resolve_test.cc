// SPDX-License-Identifier: Apache-2.0
// Tests of valid descriptions: defaults, groups of layers, sublayers, norms.
#include "runtime/spec/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

ResolvedModel Resolved(absl::string_view text) {
  absl::StatusOr<ResolvedModel> model = ResolveText(text);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : ResolvedModel();
}

constexpr char kPreBlock[] = "block { placement: \"pre\" norm: \"rms_norm\" }\n";

TEST(ResolveTest, FillsInDefaults) {
  const ResolvedModel model = Resolved(absl::StrCat(
      "n_layer: 3 n_head: 4 d_model: 32 vocab_size: 11 context_length: 5\n", kPreBlock));
  EXPECT_EQ(model.name, "m");  // name of the file
  EXPECT_EQ(model.dims.n_layer, 3);
  EXPECT_EQ(model.dims.n_sublayer, 6);
  EXPECT_EQ(model.dims.n_kv_head, 4);
  EXPECT_EQ(model.dims.d_ff, 128);
  EXPECT_EQ(model.dims.head_dim, 8);
  EXPECT_EQ(model.positions.kind, PositionKind::kLearned);
  EXPECT_EQ(model.positions.rope_theta, 10000);
  EXPECT_FALSE(model.embedding_scale.has_value());
  EXPECT_FALSE(model.tie_embeddings);
  EXPECT_FALSE(model.head_bias);
  EXPECT_TRUE(model.init.empty());
  ASSERT_EQ(model.layers.size(), 3u);
  const BlockSpec& block = *model.layers[0];
  ASSERT_EQ(block.sublayers.size(), 2u);
  EXPECT_EQ(block.sublayers[0].name, "attention");
  EXPECT_EQ(block.sublayers[0].kind, SublayerSpec::Kind::kAttention);
  EXPECT_FALSE(block.sublayers[0].attention.qkv_bias);
  EXPECT_FALSE(block.sublayers[0].attention.scale.has_value());
  EXPECT_EQ(block.sublayers[1].name, "mlp");
  EXPECT_EQ(block.sublayers[1].mlp.activation, "gelu_tanh");
  EXPECT_FALSE(block.sublayers[1].mlp.gated);
}

TEST(ResolveTest, TakesGivenValues) {
  const ResolvedModel model = Resolved(absl::StrCat(
      "name: \"mine\" n_layer: 1 n_head: 4 n_kv_head: 2 d_model: 30 d_ff: \"7\" head_dim: 6 "
      "vocab_size: 11 "
      "context_length: 5 positions { kind: ROPE rope_theta: 500 } embedding_scale: "
      "\"sqrt(d_model)\" "
      "tie_embeddings: true head_bias: true attention { bias: true scale: \"0.1\" } "
      "mlp { activation: SILU gated: true bias: true } init { match: \"*\" scale: \"0.5\" }\n",
      kPreBlock));
  EXPECT_EQ(model.name, "mine");
  EXPECT_EQ(model.dims.n_kv_head, 2);
  EXPECT_EQ(model.dims.d_ff, 7);
  EXPECT_EQ(model.dims.head_dim, 6);  // an explicit head_dim: n_head need not divide d_model
  EXPECT_EQ(model.positions.kind, PositionKind::kRope);
  EXPECT_EQ(model.positions.rope_theta, 500);
  EXPECT_EQ(model.embedding_scale->root.ToString(), "sqrt(d_model)");
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_TRUE(model.head_bias);
  EXPECT_EQ(model.init.size(), 1u);
  const SublayerSpec& attention = model.layers[0]->sublayers[0];
  EXPECT_TRUE(attention.attention.qkv_bias);
  EXPECT_TRUE(attention.attention.out_bias);
  EXPECT_EQ(attention.attention.scale->root.ToString(), "0.1");
  const SublayerSpec& mlp = model.layers[0]->sublayers[1];
  EXPECT_EQ(mlp.mlp.activation, "silu");
  EXPECT_TRUE(mlp.mlp.gated);
  EXPECT_TRUE(mlp.mlp.bias);
}

TEST(ResolveTest, EveryActivationHasItsOwnName) {
  const std::pair<const char*, const char*> activations[] = {
      {"ACTIVATION_UNSPECIFIED", "gelu_tanh"},
      {"RELU", "relu"},
      {"GELU", "gelu"},
      {"GELU_TANH", "gelu_tanh"},
      {"SILU", "silu"}};
  for (const auto& [said, meant] : activations) {
    const ResolvedModel model =
        Resolved(absl::StrCat(kDims, "mlp { activation: ", said, " }\n", kPreBlock));
    EXPECT_EQ(model.layers[0]->sublayers[1].mlp.activation, meant);
  }
}

TEST(ResolveTest, BiasesAreSetTogetherOrSeparately) {
  const auto biases = [](const char* said) {
    const ResolvedModel model =
        Resolved(absl::StrCat(kDims, "attention { ", said, " }\n", kPreBlock));
    const AttentionSpec& attention = model.layers[0]->sublayers[0].attention;
    return std::make_pair(attention.qkv_bias, attention.out_bias);
  };
  EXPECT_EQ(biases("bias: true"), std::make_pair(true, true));
  EXPECT_EQ(biases("qkv_bias: true"), std::make_pair(true, false));
  EXPECT_EQ(biases("out_bias: true"), std::make_pair(false, true));
}

TEST(ResolveTest, ConvolutionsAreFourTokensWideByDefault) {
  const ResolvedModel model = Resolved(
      absl::StrCat(kDims, "block { placement: \"pre\" norm: \"rms_norm\" sublayer { conv {} }",
                   " sublayer { name: \"last\" conv { width: 2 bias: true } } }"));
  const std::vector<SublayerSpec>& sublayers = model.layers[0]->sublayers;
  EXPECT_EQ(sublayers[0].kind, SublayerSpec::Kind::kConv);
  EXPECT_EQ(sublayers[0].name, "conv");
  EXPECT_EQ(sublayers[0].conv.width, 4);
  EXPECT_FALSE(sublayers[0].conv.bias);
  EXPECT_EQ(sublayers[1].name, "last");
  EXPECT_EQ(sublayers[1].conv.width, 2);
  EXPECT_TRUE(sublayers[1].conv.bias);
}

TEST(ResolveTest, LayersThatShareABlockShareOneValue) {
  const ResolvedModel model = Resolved(absl::StrCat(kDims, kPreBlock));
  EXPECT_EQ(model.layers[0], model.layers[1]);
}

TEST(ResolveTest, GroupsAreInOrderAndBlocksAlternate) {
  const ResolvedModel model = Resolved(
      "n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
      "layers { repeat: 2 block { placement: \"post\" norm: \"rms_norm\" } }"
      "layers { repeat: 5 block { placement: \"pre\" norm: \"rms_norm\" }"
      "                   block { placement: \"pre\" norm: \"layer_norm\" } }"
      "layers { block { placement: \"none\" } block { placement: \"olmo2\" norm: \"none\" } }");
  EXPECT_EQ(model.dims.n_layer, 9);
  EXPECT_EQ(model.dims.n_sublayer, 18);
  std::string order;
  for (const auto& block : model.layers) {
    absl::StrAppend(&order, block->placement->name, "/",
                    block->norm.has_value() ? block->norm->name : "-", " ");
  }
  EXPECT_EQ(order,
            "post/rms_norm post/rms_norm pre/rms_norm pre/layer_norm pre/rms_norm pre/layer_norm "
            "pre/rms_norm none/- olmo2/none ");
  EXPECT_EQ(model.layers[2], model.layers[4]);
}

TEST(ResolveTest, LayersShareWithTheFirstOfTheirKind) {
  const ResolvedModel model = Resolved(
      "n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
      "layers { repeat: 5 share: true block { placement: \"pre\" norm: \"rms_norm\" }"
      "                               block { placement: \"post\" norm: \"rms_norm\" } }\n"
      "layers { repeat: 2 block { placement: \"pre\" norm: \"rms_norm\" } }\n"
      "layers { block { placement: \"none\" share: \"a\" } }\n"
      "layers { block { placement: \"none\" share: \"b\" } block { placement: \"none\" share: "
      "\"a\" } }");
  EXPECT_EQ(model.first_layers, (std::vector<int64_t>{0, 1, 0, 1, 0, 5, 6, 7, 8, 7}));
  EXPECT_EQ(model.warnings, std::vector<std::string>{
                                "m.pbtxt:5:10: share has no effect; layer 9 is the only one of "
                                "its kind (repeat makes more)"});
}

TEST(ResolveTest, GroupsMayRepeatTheNumberOfLayers) {
  const ResolvedModel model = Resolved(
      "n_layer: 3 n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
      "layers { repeat: 3 block { placement: \"pre\" norm: \"rms_norm\" } }");
  EXPECT_EQ(model.dims.n_layer, 3);
}

TEST(ResolveTest, ASublayerInheritsTheModelsFields) {
  const ResolvedModel model = Resolved(
      absl::StrCat(kDims, "attention { bias: true } mlp { gated: true }\n",
                   "block { placement: \"pre\" norm: \"rms_norm\" sublayer { attention {} }"
                   " sublayer { mlp {} } sublayer { name: \"small\" mlp { activation: RELU } } }"));
  const BlockSpec& block = *model.layers[0];
  EXPECT_EQ(model.dims.n_sublayer, 6);
  EXPECT_TRUE(block.sublayers[0].attention.qkv_bias);
  EXPECT_TRUE(block.sublayers[1].mlp.gated);
  EXPECT_FALSE(block.sublayers[2].mlp.gated);
  EXPECT_EQ(block.sublayers[2].mlp.activation, "relu");
  EXPECT_EQ(block.sublayers[2].name, "small");
}

TEST(ResolveTest, NormsAreNamesOrPluginIds) {
  const ResolvedModel model = Resolved(
      absl::StrCat(kDims,
                   "norm { name: \"rms\" plugin: \"rms_norm\" attr { name: \"eps\" number: 1e-6 } }"
                   "block { placement: \"double\" norm: \"rms\" slot { name: \"norm_in\" norm: "
                   "\"layer_norm\" } }"));
  const BlockSpec& block = *model.layers[0];
  EXPECT_EQ(block.norm->name, "rms");
  EXPECT_EQ(block.norm->plugin->id(), "rms_norm");
  EXPECT_EQ(std::get<double>(block.norm->attrs.at("eps")), 1e-6);
  EXPECT_EQ(block.slots.at("norm_in").plugin->id(), "layer_norm");
  EXPECT_TRUE(block.slots.at("norm_in").attrs.empty());
}

TEST(ResolveTest, NamedNormsPrecedePlugins) {
  const ResolvedModel model = Resolved(
      absl::StrCat(kDims, "norm { name: \"rms_norm\" plugin: \"layer_norm\" }", kPreBlock));
  EXPECT_EQ(model.layers[0]->norm->plugin->id(), "layer_norm");
}

// Returns a model whose placement calls slots named after plugins; `block` has the block's norms.
std::string ModelOfSlotNames(absl::string_view block) {
  return absl::StrCat(kDims,
                      "placement { name: \"p\"\n"
                      "  each: \"x = x + f(layer_norm(x))\"\n"
                      "  end: \"x = layer_norm(rms_norm(x))\" }\n"
                      "block { placement: \"p\" ",
                      block, " }\n");
}

TEST(ResolveTest, ASlotNamedLikeAnotherPluginIsAWarningOnce) {
  const ResolvedModel model = Resolved(ModelOfSlotNames("norm: \"rms_norm\""));
  EXPECT_THAT(model.warnings,
              ::testing::ElementsAre(
                  "m.pbtxt:3:3: the slot \"layer_norm\" has the name of a norm plugin, but the "
                  "block's norm, \"rms_norm\", fills it; write slot { name: \"layer_norm\" norm: "
                  "\"layer_norm\" } in the block, or give the slot another name\n"
                  "  x = x + f(layer_norm(x))\n"
                  "            ^"));
  const ResolvedModel named = Resolved(
      absl::StrCat("norm { name: \"mine\" plugin: \"none\" }", ModelOfSlotNames("norm: \"mine\"")));
  EXPECT_EQ(named.warnings.size(), 2u);  // also of rms_norm
}

TEST(ResolveTest, FilledSlotsAreNoWarning) {
  for (const char* block :
       {"norm: \"rms_norm\" slot { name: \"layer_norm\" norm: \"layer_norm\" }",
        "norm: \"rms_norm\" slot { name: \"layer_norm\" norm: \"none\" }",
        "norm: \"layer_norm\" slot { name: \"rms_norm\" norm: \"rms_norm\" }"}) {
    EXPECT_THAT(Resolved(ModelOfSlotNames(block)).warnings, ::testing::IsEmpty()) << block;
  }
  // The norm's plugin counts, and a name that the model gives to a norm.
  const std::string attributes = "attr { name: \"eps\" number: 1e-6 } }";
  for (const char* norm : {"norm { name: \"mine\" plugin: \"layer_norm\" ",
                           "norm { name: \"layer_norm\" plugin: \"rms_norm\" "}) {
    const std::string name = absl::StrContains(norm, "mine") ? "mine" : "layer_norm";
    EXPECT_THAT(Resolved(absl::StrCat(norm, attributes,
                                      ModelOfSlotNames(absl::StrCat(
                                          "norm: \"", name,
                                          "\" slot { name: \"rms_norm\" norm: \"rms_norm\" }"))))
                    .warnings,
                ::testing::IsEmpty())
        << norm;
  }
}

TEST(ResolveTest, EveryInitRuleIsRead) {
  using Distribution = InitRule::Distribution;
  const ResolvedModel model =
      Resolved(absl::StrCat(kDims, kPreBlock,
                            "init { match: \"a\" normal { std: \"0.02 / sqrt(2 * n_layer)\" } }\n"
                            "init { match: \"b\" uniform {} }\n"
                            "init { match: \"c\" xavier_normal { gain: \"2\" } }\n"
                            "init { match: \"d\" xavier_uniform {} scale: \"0.5\" }\n"
                            "init { match: \"e\" kaiming_uniform {} }\n"
                            "init { match: \"f\" constant { value: \"3\" } }\n"
                            "init { match: \"g\" scale: \"0.1\" }\n"));
  const Distribution wanted[] = {
      Distribution::kNormal,        Distribution::kUniform,        Distribution::kXavierNormal,
      Distribution::kXavierUniform, Distribution::kKaimingUniform, Distribution::kConstant,
      Distribution::kNone};
  const std::vector<std::string> arguments[] = {
      {"0", "0.02 / sqrt(2 * n_layer)"}, {"-1", "1"}, {"2"}, {"1"}, {"sqrt(5)"}, {"3"}, {}};
  ASSERT_EQ(model.init.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    const InitRule& rule = model.init[i];
    EXPECT_EQ(rule.match.value, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(rule.distribution, wanted[i]);
    std::vector<std::string> got;
    for (const Expression& argument : rule.arguments) got.push_back(argument.root.ToString());
    EXPECT_EQ(got, arguments[i]);
  }
  EXPECT_EQ(model.init[3].scale->root.ToString(), "0.5");
  EXPECT_FALSE(model.init[0].scale.has_value());
}

}  // namespace
}  // namespace plumb
