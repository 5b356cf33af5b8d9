// SPDX-License-Identifier: Apache-2.0
// Tests of fuse-residual-norms on the models of all shipped placements: no bit of the loss or of a
// gradient may change, and the pass must find its patterns. Also of activations as statements.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kSeq = 8;

struct Case {
  std::string placement;
  std::string norm;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& placement : ShippedPlacements()) {
    for (const char* norm : {"layer_norm", "rms_norm"}) cases.push_back({placement, norm});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.placement, "_", info.param.norm);
}

// Number of fused nodes in a training program.
struct Fused {
  int norms = 0;      // norms fused with the sum before them
  int gradients = 0;  // gradients of norms fused with the sum after them
};

class FusionTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelContext> Context(const std::string& placement, const std::string& norm) {
    TinyModel model;
    model.placement = placement;
    model.norm = norm;
    model.n_layer = placement == "swin_v2" ? 6 : 2;
    model.context_length = kSeq;
    return MakeContext(runtime_.get(), model.Text());
  }

  Fused CountFused(const std::string& placement) {
    const std::unique_ptr<ModelContext> context = Context(placement, "rms_norm");
    context->optimize.disabled = {"sum-products"};  // it would fuse the sums into products first
    BuildOptions options;
    options.program = Program::kTrain;
    options.batch = kBatch;
    options.seq = kSeq;
    const absl::StatusOr<Graph> graph = BuildProgram(*context, options, true);
    EXPECT_TRUE(graph.ok()) << graph.status();
    Fused fused;
    for (const Node& node : graph->nodes) {
      if (node.op->name == "add_norm") ++fused.norms;
      if (node.op->name == "norm_grad" && node.inputs[4] != kNoValue) ++fused.gradients;
    }
    return fused;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

class PlacementFusionTest : public FusionTest, public ::testing::WithParamInterface<Case> {};

TEST_P(PlacementFusionTest, KeepsEveryBitOfLossLogitsAndGradients) {
  const std::unique_ptr<ModelContext> context = Context(GetParam().placement, GetParam().norm);
  const ParameterStore parameters = GenericParameters(*context);
  const Tokens tokens = RandomTokens(kBatch, kSeq, 5);
  for (const bool gradients : {true, false}) {
    context->optimize.disabled = {"sum-products"};
    const auto fused = RunBatch(*context, parameters, tokens, gradients, /*threads=*/2);
    context->optimize.disabled = {"sum-products", "fuse-residual-norms"};
    const auto plain = RunBatch(*context, parameters, tokens, gradients, /*threads=*/1);
    ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
    EXPECT_EQ(fused->loss, plain->loss);
    EXPECT_EQ(fused->logits, plain->logits);
    EXPECT_EQ(fused->gradients, plain->gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, PlacementFusionTest, ::testing::ValuesIn(Cases()), CaseName);

// The model has two layers of two sublayers. The sum of the embeddings counts, too.
TEST_F(FusionTest, FindsTheSumsBeforeAndAfterNorms) {
  const Fused pre = CountFused("pre");
  EXPECT_EQ(pre.norms, 5);      // every norm, including the last, follows a sum
  EXPECT_EQ(pre.gradients, 4);  // every branch's gradient is added to the stream's
  const Fused post = CountFused("post");
  EXPECT_EQ(post.norms, 4);
  EXPECT_EQ(post.gradients, 0);  // no gradient bypasses a norm
  const Fused both = CountFused("double");
  EXPECT_EQ(both.norms, 5);  // the norms after the sublayers have no sum before them
  EXPECT_EQ(both.gradients, 4);
}

// The statement must use the epilogue of the product, as the field does.
TEST_F(FusionTest, ActivationStatementEqualsTheField) {
  const auto ops = [&](const std::string& mlp, const std::string& block) {
    TinyModel model;
    model.more = mlp;
    model.block = block;
    const auto context = MakeContext(runtime_.get(), model.Text());
    BuildOptions options;
    options.program = Program::kTrain;
    options.batch = kBatch;
    options.seq = kSeq;
    const Graph graph = *BuildProgram(*context, options, true);
    std::vector<std::string> names;
    for (const Node& node : graph.nodes) {
      names.push_back(absl::StrCat(node.op->name, node.attrs.ToString()));
    }
    return names;
  };
  const auto field = ops("mlp { activation: SILU }", "");
  EXPECT_EQ(std::count_if(field.begin(), field.end(),
                          [](const std::string& op) { return op.find("matmul_act{") == 0; }),
            2);
  EXPECT_EQ(ops("mlp { activation: NONE }", "inside { point: \"mlp.up\" rule: \"up = silu(up)\" }"),
            field);
}

}  // namespace
}  // namespace plumb
