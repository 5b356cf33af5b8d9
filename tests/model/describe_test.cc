// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DescribeTest : public ::testing::Test {
 protected:
  StackDescription Of(const std::string& text) {
    context_ = MakeContext(runtime_.get(), text);
    const auto description = DescribeStack(context_->model);
    if (!description.ok()) {
      ADD_FAILURE() << description.status();
      return {};
    }
    return *description;
  }
  StackDescription DescribeBody(const std::string& body, int n_layer = 2) {
    TinyModel model;
    model.placement = "mine";
    model.n_layer = n_layer;
    model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
    return Of(model.Text());
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::unique_ptr<ModelContext> context_;
};

constexpr char kRms8[] = "norm: rms_norm(affine=true, eps=1e-05, unit_offset=false)[8]";

TEST_F(DescribeTest, AModelOfOnePlacementIsOneGroup) {
  TinyModel model;
  model.placement = "resi_dual";
  const StackDescription description = Of(model.Text());
  EXPECT_THAT(description.begin, ElementsAre("begin: d = x"));
  EXPECT_THAT(description.end, ElementsAre("end: x = x + norm(d)"));
  ASSERT_EQ(description.groups.size(), 1u);
  const LayerGroup& group = description.groups[0];
  EXPECT_EQ(group.first, 0);
  EXPECT_EQ(group.last, 1);
  EXPECT_EQ(group.placement, "resi_dual");
  EXPECT_THAT(group.equations,
              ElementsAre("each: y = f(x)", "each: d = d + y", "each: x = norm(x + y)"));
  EXPECT_THAT(group.scalars, IsEmpty());
  EXPECT_THAT(group.norms, ElementsAre(kRms8));
  EXPECT_EQ(group.jacobians.front().text,
            "J_norm (I + J_mlp) J_norm (I + J_attention); other streams carry the signal too");
  EXPECT_EQ(description.routes.norm_sites, 5);
}

TEST_F(DescribeTest, ShowsScalarsAndInitialValues) {
  TinyModel model;
  model.placement = "deepnorm";
  EXPECT_THAT(
      Of(model.Text()).groups[0].scalars,
      ElementsAre("alpha = (2 * n_layer) ^ 0.25 = 1.41421", "beta = (8 * n_layer) ^ -0.25 = 0.5"));
  model.placement = "normformer";
  const LayerGroup group = Of(model.Text()).groups[0];
  EXPECT_THAT(group.scalars, ElementsAre("head_scale: learned per head, initially 1"));
  EXPECT_THAT(
      group.equations,
      ElementsAre("block: x = x + norm_out(attention(norm_1(x)))", "block: x = x + mlp(norm_2(x))",
                  "inside attention.context: context = head_scale * context",
                  "inside mlp.hidden: hidden = hidden_norm(hidden)"));
  EXPECT_EQ(group.norms.size(), 5u);
  EXPECT_EQ(group.norms[0], "hidden_norm: rms_norm(affine=true, eps=1e-05, unit_offset=false)[12]");
}

TEST_F(DescribeTest, LayersThatShareABlockAreOneGroup) {
  const StackDescription description = Of(R"pbtxt(
    n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    layers { repeat: 2 block { placement: "post" norm: "rms_norm" } }
    layers { repeat: 3 block { placement: "pre" norm: "rms_norm" } })pbtxt");
  ASSERT_EQ(description.groups.size(), 2u);
  EXPECT_EQ(description.groups[0].last, 1);
  EXPECT_EQ(description.groups[1].first, 2);
  EXPECT_EQ(description.groups[1].last, 4);
  EXPECT_EQ(description.groups[1].placement, "pre");
  EXPECT_EQ(description.groups[1].jacobians.front().text,
            "(I + J_mlp J_norm) (I + J_attention J_norm)");
  EXPECT_THAT(description.begin, IsEmpty());
  EXPECT_THAT(description.end, ElementsAre("end: x = norm(x)"));
}

TEST_F(DescribeTest, JacobiansNameTheirLayers) {
  const std::vector<LayerJacobian> jacobians = Of(R"pbtxt(
    n_layer: 4 n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    placement { name: "mixed" each: "x = x + f(norm(x)) if layer % 3 != 1"
                each: "x = norm(x + f(x)) if layer % 3 == 1" }
    block { placement: "mixed" norm: "rms_norm" })pbtxt")
                                                   .groups[0]
                                                   .jacobians;
  ASSERT_EQ(jacobians.size(), 2u);
  EXPECT_THAT(jacobians[0].layers, ElementsAre(0, 3));
  EXPECT_EQ(jacobians[0].text, "J_norm (I + J_mlp) J_norm (I + J_attention)");
  EXPECT_THAT(jacobians[1].layers, ElementsAre(1, 2));
  EXPECT_EQ(jacobians[1].text, "(I + J_mlp J_norm) (I + J_attention J_norm)");
}

TEST_F(DescribeTest, ShowsRangesOfScalars) {
  const StackDescription description = Of(R"pbtxt(
    n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    placement { name: "scaled" let: "a = layer" let: "b = 1 / sublayer" let: "c = n_layer"
                each: "x = a * x + b / c * f(x)" }
    layers { repeat: 2 block { placement: "none" } }
    layers { repeat: 2 block { placement: "scaled" } })pbtxt");
  EXPECT_THAT(description.groups[1].scalars,
              ElementsAre("a = layer = 3 .. 4 over the layers",
                          "b = 1 / sublayer = 0.2 .. 0.125 over the layers", "c = n_layer = 4"));
}

TEST_F(DescribeTest, ShowsWidthsOfConvolutions) {
  const LayerGroup group = Of(R"pbtxt(
    n_layer: 2 n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    block { placement: "pre" norm: "rms_norm"
            sublayer { attention {} } sublayer { name: "canon" conv {} } })pbtxt")
                               .groups[0];
  EXPECT_THAT(group.scalars, ElementsAre("canon: convolution over 4 tokens"));
  EXPECT_EQ(group.jacobians.front().text, "(I + J_canon J_norm) (I + J_attention J_norm)");
}

TEST_F(DescribeTest, TablesOverTokensComeFirst) {
  const StackDescription description = Of(R"pbtxt(
    n_layer: 2 n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    embedding { name: "ve" width: "n_head * head_dim" } embedding { name: "extra" }
    placement { name: "p" extends: "pre" begin: "x = x + extra"
                inside { point: "attention.v" rule: "v = v + ve" } }
    block { placement: "p" norm: "rms_norm" })pbtxt");
  EXPECT_THAT(description.begin, ElementsAre("embedding ve: 8 a token",
                                             "embedding extra: 8 a token", "begin: x = x + extra"));
  EXPECT_TRUE(description.routes.identity.exists);
  EXPECT_EQ(description.groups[0].jacobians.front().text,
            "(I + J_mlp J_norm) (I + J_attention J_norm)");
}

TEST_F(DescribeTest, ShowsSharing) {
  const auto scalars = [this](const std::string& fields) {
    return Of(absl::StrCat(
                  "n_head: 2 d_model: 8 vocab_size: 5 context_length: 8 layers { repeat: 3 "
                  "share: true block { placement: \"pre\" norm: \"rms_norm\" ",
                  fields, " } }"))
        .groups[0]
        .scalars;
  };
  EXPECT_THAT(scalars(""), ElementsAre("parameters: shared, as layers.0"));
  EXPECT_THAT(scalars("own_norms: true"),
              ElementsAre("parameters: shared, as layers.0; norms and learned values are each "
                          "layer's own"));
}

TEST_F(DescribeTest, ShowsAttentionFields) {
  TinyModel model;
  model.more = "attention { score_cap: \"50\" window: \"4 * (layer % 2)\" sinks: true }";
  EXPECT_THAT(Of(model.Text()).groups[0].scalars,
              ElementsAre("attention.score_cap = 50 = 50",
                          "attention.window = 4 * (layer % 2) = 4 .. 0 over the layers",
                          "attention.sink: learned per head"));
}

// The fields of its heads read the model's heads, the others its own.
TEST_F(DescribeTest, ShowsHeads) {
  TinyModel model;
  model.more =
      "attention { n_head: \"2 * n_head\" n_kv_head: \"layer\" head_dim: \"head_dim + 1\" "
      "window: \"n_head\" scale: \"1 / head_dim\" }";
  EXPECT_THAT(Of(model.Text()).groups[0].scalars,
              ElementsAre("attention.n_head = 2 * n_head = 4",
                          "attention.n_kv_head = layer = 1 .. 2 over the layers",
                          "attention.head_dim = head_dim + 1 = 5",
                          "attention.scale = 1 / head_dim = 0.2", "attention.window = n_head = 4"));
}

TEST_F(DescribeTest, ShowsEmbeddingProjections) {
  TinyModel model;
  model.more = "embedding_width: \"d_model / 2\"";
  EXPECT_THAT(Of(model.Text()).begin, ElementsAre("embedding.project: 4 to 8"));
  EXPECT_THAT(Of(model.Text()).end, ElementsAre("end: x = norm(x)", "head.project: 8 to 4"));
}

TEST_F(DescribeTest, ShowsAlibiAsAFormula) {
  TinyModel model;
  model.positions = "ALIBI";
  const auto text = [&] {
    return DescribePositions(MakeContext(runtime_.get(), model.Text())->model.positions);
  };
  EXPECT_EQ(text(), "alibi(score - slope of the head * distance)");
  model.positions = "ALIBI alibi_scale: \"1 / layer\"";
  EXPECT_EQ(text(), "alibi(score - (1 / layer) * slope of the head * distance)");
  EXPECT_THAT(Of(model.Text()).groups[0].scalars,
              ElementsAre("attention.alibi_scale = 1 / layer = 1 .. 0.5 over the layers"));
}

TEST_F(DescribeTest, ShowsPositionsThatAreNotDefaults) {
  TinyModel model;
  const auto positions = [&](const std::string& fields) {
    model.positions = absl::StrCat("ROPE ", fields);
    return DescribePositions(MakeContext(runtime_.get(), model.Text())->model.positions);
  };
  EXPECT_EQ(positions(""), "rope(theta=10000)");
  model.positions = "LEARNED offset: 2";
  EXPECT_EQ(DescribePositions(MakeContext(runtime_.get(), model.Text())->model.positions),
            "learned(offset=2)");
  EXPECT_EQ(positions("rope_theta: 5e5 rope_interleaved: true rope_dims: \"head_dim / 2\""),
            "rope(theta=500000, dims=head_dim / 2, interleaved)");
  EXPECT_EQ(positions("rope_scaling { llama3 { factor: 8 low_freq_factor: 1 high_freq_factor: 4 "
                      "original_context_length: 8192 } }"),
            "rope(theta=10000, llama3(factor=8, original=8192, low=1, high=4))");
  EXPECT_EQ(positions("rope_scaling { yarn { factor: 1 original_context_length: 64 } }"),
            "rope(theta=10000, yarn(factor=1, original=64, beta_fast=32, beta_slow=1, "
            "attention_factor=1))");
  EXPECT_EQ(positions("rope_scaling { longrope { factor: 1 factor: 2.5 attention_factor: 1.5 } "
                      "when: \"layer == 1\" } rope_scaling { linear: \"3\" }"),
            "rope(theta=10000, longrope(factors=[1 2.5], attention_factor=1.5) if layer == 1, "
            "linear(factor=3))");
  EXPECT_EQ(positions("rope_base: \"100 * layer\" rope_scaling { linear: \"2\" }"),
            "rope(base=100 * layer, linear(factor=2))");
  EXPECT_THAT(Of(model.Text()).groups[0].scalars,
              ElementsAre("attention.rope_base = 100 * layer = 100 .. 200 over the layers",
                          "attention.rope_scaling.linear = 2 = 2"));
}

// A formula need not use a scalar in layers in which it has no value, and its description shows
// that.
TEST_F(DescribeTest, ShowsScalarsWithoutValues) {
  const StackDescription description = DescribeBody(
      "let: \"a = 1 / (layer - 1)\" each: \"y = f(x)\" "
      "each: \"x = x + y if layer == 1\" each: \"x = x + a * y if layer > 1\"");
  ASSERT_EQ(description.groups.size(), 1u);
  EXPECT_THAT(description.groups[0].scalars, ElementsAre("a = 1 / (layer - 1)"));
}

TEST_F(DescribeTest, ListsNormsOfSomeLayers) {
  TinyModel model;
  model.placement = "swin_v2";
  model.n_layer = 6;
  const std::vector<LayerGroup> groups = Of(model.Text()).groups;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(groups[0].norms, ElementsAre(kRms8, absl::StrCat("stream_", kRms8)));
}

TEST_F(DescribeTest, BeginAndEndNormsFollowTheOuterGroups) {
  const std::vector<LayerGroup> groups = Of(R"pbtxt(
    n_head: 2 d_model: 8 vocab_size: 5 context_length: 8
    placement { name: "first" begin: "x = norm_begin(x)" each: "x = x + f(x)"
                inside { point: "head.logits" rule: "logits = ignored(logits)" } }
    placement { name: "last" each: "x = x + f(x)" end: "x = norm_end(x)"
                inside { point: "head.logits" rule: "logits = cap_norm(logits)" } }
    layers { repeat: 2 block { placement: "first" norm: "rms_norm" } }
    layers { repeat: 1 block { placement: "none" } }
    layers { repeat: 2 block { placement: "last" norm: "rms_norm" } })pbtxt")
                                             .groups;
  ASSERT_EQ(groups.size(), 3u);
  const char kRms[] = ": rms_norm(affine=true, eps=1e-05, unit_offset=false)";
  EXPECT_THAT(groups[0].norms, ElementsAre(absl::StrCat("norm_begin", kRms, "[8]")));
  EXPECT_THAT(groups[0].equations, ElementsAre("each: x = x + f(x)"));
  EXPECT_THAT(groups[1].norms, IsEmpty());
  EXPECT_THAT(groups[2].equations,
              ElementsAre("each: x = x + f(x)", "inside head.logits: logits = cap_norm(logits)"));
  EXPECT_THAT(groups[2].norms, ElementsAre(absl::StrCat("cap_norm", kRms, "[5]"),
                                           absl::StrCat("norm_end", kRms, "[8]")));
}

TEST_F(DescribeTest, ShowsNormAttributes) {
  TinyModel model;
  model.norm = "mine";
  model.more = R"pbtxt(norm { name: "mine" plugin: "layer_norm"
                              attr { name: "eps" number: 1e-6 }
                              attr { name: "bias" flag: false } })pbtxt";
  EXPECT_THAT(Of(model.Text()).groups[0].norms,
              ElementsAre("norm: layer_norm(affine=true, bias=false, eps=1e-06)[8]"));
}

}  // namespace
}  // namespace plumb
