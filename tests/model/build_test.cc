// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/build.h"
#include "runtime/base/file.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/app/test_models.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

// Returns the text of a graph in tests/model/graphs.
std::string Golden(const std::string& name) {
  return *ReadFile(absl::StrCat(PLUMB_SOURCE_DIR, "/tests/model/graphs/", name, ".txt"));
}

class BuildTest : public ::testing::Test {
 protected:
  Graph Build(const std::string& text, Program program, int64_t seq = 4) {
    contexts_.push_back(MakeContext(runtime_.get(), text));
    const ModelContext& context = *contexts_.back();
    BuildOptions options;
    options.program = program;
    options.batch = 2;
    options.seq = seq;
    const auto graph = BuildForward(context.model, context.parameters, *context.ops, options);
    if (!graph.ok()) {
      ADD_FAILURE() << graph.status();
      return {};
    }
    EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph);
    return *graph;
  }

  static std::string ListOps(const Graph& graph) {
    return absl::StrJoin(graph.nodes, " ",
                         [](std::string* out, const Node& node) { out->append(node.op->name); });
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::vector<std::unique_ptr<ModelContext>> contexts_;
};

TEST_F(BuildTest, TheTrainingGraphOfAPreNormModel) {
  TinyModel model;
  model.n_layer = 1;
  EXPECT_EQ(ToString(Build(model.Text(), Program::kTrain)), Golden("train_pre_norm"));
}

TEST_F(BuildTest, TheCachedGraphOfAPostNormModelWithRopeAndGroupedHeads) {
  TinyModel model;
  model.n_layer = 1;
  model.placement = "post";
  model.n_kv_head = 1;
  model.positions = "ROPE";
  model.more = "mlp { gated: true activation: SILU }";
  EXPECT_EQ(ToString(Build(model.Text(), Program::kCached)), Golden("cached_post_norm"));
}

// The graphs above do not show that all programs have the same ops.
TEST_F(BuildTest, EveryProgramEmitsTheSameFormulas) {
  TinyModel model;
  model.placement = "normformer";
  const std::string train = ListOps(Build(model.Text(), Program::kTrain));
  EXPECT_EQ(ListOps(Build(model.Text(), Program::kEval)), train);
  std::string cached = ListOps(Build(model.Text(), Program::kCached, 1));
  size_t at;
  while ((at = cached.find("attention_cached")) != std::string::npos) {
    cached.replace(at, 16, "attention");
  }
  EXPECT_EQ(absl::StrCat(cached, " cross_entropy"), train);
}

TEST_F(BuildTest, NormsSaveForTheBackwardPassOnlyInTraining) {
  TinyModel model;
  EXPECT_NE(ToString(Build(model.Text(), Program::kTrain)).find("train=true"), std::string::npos);
  EXPECT_EQ(ToString(Build(model.Text(), Program::kEval)).find("train=true"), std::string::npos);
  EXPECT_EQ(ToString(Build(model.Text(), Program::kCached)).find("train=true"), std::string::npos);
}

TEST_F(BuildTest, CrossTokenNormsTakeStatisticsInTrainingOnly) {
  ASSERT_TRUE(runtime_->RegisterPlugin(CenteringNorm()).ok());
  TinyModel model;
  model.n_layer = 1;
  model.placement = "post";
  model.norm = "c";
  model.more = R"pbtxt(norm { name: "c" plugin: "test.centering" allow_cross_token: true })pbtxt";
  const auto count = [&](Program program, const std::string& op) {
    int n = 0;
    for (const Node& node : Build(model.Text(), program).nodes) n += node.op->name == op ? 1 : 0;
    return n;
  };
  for (Program program : {Program::kTrain, Program::kEval, Program::kCached}) {
    const bool train = program == Program::kTrain;
    EXPECT_EQ(count(program, "cross_norm"), train ? 2 : 0);
    EXPECT_EQ(count(program, "cross_norm_eval"), train ? 0 : 2);
    EXPECT_EQ(count(program, "norm"), 0);
    const Graph graph = Build(model.Text(), program);
    const ValueId state = graph.FindValue("layers.0.attention.norm.state");
    ASSERT_NE(state, kNoValue);
    EXPECT_EQ(graph.value(state).kind, ValueKind::kState);
  }
}

TEST_F(BuildTest, BatchStatisticsNormsCannotDecode) {
  ASSERT_TRUE(runtime_->RegisterPlugin(CenteringEvalNorm()).ok());
  TinyModel model;
  model.norm = "both";
  model.more =
      R"pbtxt(norm { name: "both" plugin: "test.centering_eval" allow_cross_token: true })pbtxt";
  Build(model.Text(), Program::kTrain);
  Build(model.Text(), Program::kEval);
  const ModelContext& context = *contexts_.back();
  BuildOptions options;
  options.program = Program::kCached;
  const absl::Status status =
      BuildForward(context.model, context.parameters, *context.ops, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("norm \"both\" (test.centering_eval)"), std::string::npos);
  EXPECT_NE(status.message().find("cannot decode token by token"), std::string::npos);
}

// A norm that declares itself the identity is elided, not copied. A placement whose slots hold it
// is reduced to the rest of its formula.
TEST_F(BuildTest, NoneEqualsPreWithIdentityNorms) {
  TinyModel none;
  none.placement = "none";
  const std::string expected = ListOps(Build(none.Text(), Program::kTrain));
  for (const char* placement :
       {"pre", "post", "double", "peri", "olmo2", "bloom", "swin_v2", "qk_norm", "qk_norm_full",
        "olmo2_qk", "double_qk", "sub_ln", "hybrid_norm", "hybrid_norm_star"}) {
    TinyModel model;
    model.placement = placement;
    model.norm = "none";
    const Graph graph = Build(model.Text(), Program::kTrain);
    EXPECT_EQ(ListOps(graph), expected) << placement;
    EXPECT_EQ(graph.values.size(), Build(none.Text(), Program::kTrain).values.size()) << placement;
  }
  none.norm = "rms_norm";  // no slot applies it
  EXPECT_EQ(ListOps(Build(none.Text(), Program::kTrain)), expected);
}

TEST_F(BuildTest, TheEmbeddingIsScaledBeforePositionsAreAdded) {
  TinyModel model;
  model.d_model = 16;
  model.n_layer = 1;
  model.more = "embedding_scale: \"sqrt(d_model)\"";
  EXPECT_NE(ToString(Build(model.Text(), Program::kEval))
                .find("embedding = combine(%15, %16) {coefs=[4, 1], constant=0}"),
            std::string::npos);
}

TEST_F(BuildTest, SumsAreFoldedIntoOneNode) {
  TinyModel model;
  model.n_layer = 1;
  model.placement = "mine";
  model.more = "placement { name: \"mine\" each: \"x = 2 * (x + f(x)) - x / 2 + 1\" }";
  EXPECT_NE(ToString(Build(model.Text(), Program::kEval)).find("{coefs=[1.5, 2], constant=1}"),
            std::string::npos)
      << ToString(Build(model.Text(), Program::kEval));
}

class StreamsTest : public BuildTest {
 protected:
  // Returns "name: value" for every stream.
  std::vector<std::string> Streams(const std::string& placement) {
    TinyModel model;
    model.n_layer = 1;
    model.placement = placement;
    const auto context = MakeContext(runtime_.get(), model.Text());
    const BuildOptions options;
    const Graph graph = *BuildForward(context->model, context->parameters, *context->ops, options);
    std::vector<std::string> streams;
    const std::vector<StreamPoint> points =
        *ListStreams(context->model, context->parameters, *context->ops, options);
    for (const StreamPoint& point : points) {
      EXPECT_NE(graph.FindValue(point.value), kNoValue) << point.value;
      streams.push_back(absl::StrCat(point.name, ": ", point.value));
    }
    return streams;
  }
};

using Names = std::vector<std::string>;

TEST_F(StreamsTest, StreamIsTheResultOfTheFormula) {
  EXPECT_EQ(Streams("pre"),
            (Names{"embedding.residual: embedding", "layers.0.attention.residual: layers.0.sum",
                   "layers.0.mlp.residual: layers.0.sum_2", "layers.0.residual: layers.0.sum_2",
                   "end.residual: end.norm.out"}));
  EXPECT_EQ(Streams("post"), (Names{"embedding.residual: embedding",
                                    "layers.0.attention.residual: layers.0.attention.norm.out",
                                    "layers.0.mlp.residual: layers.0.mlp.norm.out",
                                    "layers.0.residual: layers.0.mlp.norm.out"}));
}

TEST_F(StreamsTest, BlockStreamIsNamedAfterTheLastSublayer) {
  EXPECT_EQ(Streams("parallel"),
            (Names{"embedding.residual: embedding", "layers.0.mlp.residual: layers.0.sum",
                   "layers.0.residual: layers.0.sum", "end.residual: end.norm.out"}));
  EXPECT_EQ(Streams("hybrid_norm")[1], "layers.0.attention.residual: layers.0.sum");
}

TEST_F(StreamsTest, FurtherStreamsHaveTheirNameAtTheEnd) {
  const Names streams = Streams("resi_dual");
  EXPECT_EQ(streams[1], "begin.residual.d: embedding");
  EXPECT_EQ(streams[2], "layers.0.attention.residual.d: layers.0.sum");
  EXPECT_EQ(streams[3], "layers.0.attention.residual: layers.0.attention.norm.out");
}

}  // namespace
}  // namespace plumb
