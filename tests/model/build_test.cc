// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/build.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/app/test_models.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

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

  static std::string OpsOf(const Graph& graph) {
    return absl::StrJoin(graph.nodes, " ",
                         [](std::string* out, const Node& node) { out->append(node.op->name); });
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::vector<std::unique_ptr<ModelContext>> contexts_;
};

TEST_F(BuildTest, TheTrainingGraphOfAPreNormModel) {
  TinyModel model;
  model.n_layer = 1;
  EXPECT_EQ(ToString(Build(model.Text(), Program::kTrain)),
            R"graph(%0 f32[5, 8] embedding.token.weight = parameter
%1 f32[8, 8] embedding.position.weight = parameter
%2 f32[8] layers.0.attention.norm.weight = parameter
%3 f32[8, 8] layers.0.attention.q.weight = parameter
%4 f32[8, 8] layers.0.attention.k.weight = parameter
%5 f32[8, 8] layers.0.attention.v.weight = parameter
%6 f32[8, 8] layers.0.attention.o.weight = parameter
%7 f32[8] layers.0.mlp.norm.weight = parameter
%8 f32[12, 8] layers.0.mlp.up.weight = parameter
%9 f32[8, 12] layers.0.mlp.down.weight = parameter
%10 f32[8] end.norm.weight = parameter
%11 f32[5, 8] head.weight = parameter
%12 i32[2, 4] tokens = input
%13 i32[2, 4] positions = input
%14 i32[2, 4] targets = input
%15 f32[2, 4, 8] embedding.token = embedding(%0, %12)
%16 f32[2, 4, 8] embedding.position = embedding(%1, %13)
%17 f32[2, 4, 8] embedding = combine(%15, %16) {coefs=[1, 1], constant=0}
%18 f32[2, 4, 8] layers.0.attention.norm.out, %19 f32[8, 1] layers.0.attention.norm.out.1 = norm(%17, %2) {instance=rms_norm(affine=true, eps=1e-05, unit_offset=false)[8], train=true}
%20 f32[2, 4, 8] layers.0.attention.q = matmul(%18, %3) {transpose_b=true}
%21 f32[2, 4, 8] layers.0.attention.k = matmul(%18, %4) {transpose_b=true}
%22 f32[2, 4, 8] layers.0.attention.v = matmul(%18, %5) {transpose_b=true}
%23 f32[2, 4, 8] layers.0.attention.context, %24 f32[2, 2, 4] layers.0.attention.context.1 = attention(%20, %21, %22) {n_head=2, n_kv_head=2, scale=0.5}
%25 f32[2, 4, 8] layers.0.attention.o = matmul(%23, %6) {transpose_b=true}
%26 f32[2, 4, 8] layers.0.sum = combine(%17, %25) {coefs=[1, 1], constant=0}
%27 f32[2, 4, 8] layers.0.mlp.norm.out, %28 f32[8, 1] layers.0.mlp.norm.out.1 = norm(%26, %7) {instance=rms_norm(affine=true, eps=1e-05, unit_offset=false)[8], train=true}
%29 f32[2, 4, 12] layers.0.mlp.up = matmul(%27, %8) {transpose_b=true}
%30 f32[2, 4, 12] layers.0.mlp.hidden = act(%29) {kind="gelu_tanh"}
%31 f32[2, 4, 8] layers.0.mlp.down = matmul(%30, %9) {transpose_b=true}
%32 f32[2, 4, 8] layers.0.sum_2 = combine(%26, %31) {coefs=[1, 1], constant=0}
%33 f32[2, 4, 8] end.norm.out, %34 f32[8, 1] end.norm.out.1 = norm(%32, %10) {instance=rms_norm(affine=true, eps=1e-05, unit_offset=false)[8], train=true}
%35 f32[2, 4, 5] logits = matmul(%33, %11) {transpose_b=true}
%36 f32[1] loss, %37 f32[8] loss.1 = cross_entropy(%35, %14)
output loss = %36
)graph");
}

TEST_F(BuildTest, TheCachedGraphOfAPostNormModelWithRopeAndGroupedHeads) {
  TinyModel model;
  model.n_layer = 1;
  model.placement = "post";
  model.n_kv_head = 1;
  model.positions = "ROPE";
  model.more = "mlp { gated: true activation: SILU }";
  EXPECT_EQ(ToString(Build(model.Text(), Program::kCached)),
            R"graph(%0 f32[5, 8] embedding.token.weight = parameter
%1 f32[8, 8] layers.0.attention.q.weight = parameter
%2 f32[4, 8] layers.0.attention.k.weight = parameter
%3 f32[4, 8] layers.0.attention.v.weight = parameter
%4 f32[8, 8] layers.0.attention.o.weight = parameter
%5 f32[8] layers.0.attention.norm.weight = parameter
%6 f32[12, 8] layers.0.mlp.gate.weight = parameter
%7 f32[12, 8] layers.0.mlp.up.weight = parameter
%8 f32[8, 12] layers.0.mlp.down.weight = parameter
%9 f32[8] layers.0.mlp.norm.weight = parameter
%10 f32[5, 8] head.weight = parameter
%11 i32[2, 4] tokens = input
%12 i32[2, 4] positions = input
%19 f32[2, 1, 8, 4] layers.0.attention.k_cache = state
%20 f32[2, 1, 8, 4] layers.0.attention.v_cache = state
%13 f32[2, 4, 8] embedding.token = embedding(%0, %11)
%14 f32[2, 4, 8] layers.0.attention.q = matmul(%13, %1) {transpose_b=true}
%15 f32[2, 4, 4] layers.0.attention.k = matmul(%13, %2) {transpose_b=true}
%16 f32[2, 4, 4] layers.0.attention.v = matmul(%13, %3) {transpose_b=true}
%17 f32[2, 4, 8] layers.0.attention.q.rope = rope(%14, %12) {head_dim=4, theta=10000}
%18 f32[2, 4, 4] layers.0.attention.k.rope = rope(%15, %12) {head_dim=4, theta=10000}
%21 f32[2, 4, 8] layers.0.attention.context, %22 f32[2, 1, 8, 4] layers.0.attention.context.1, %23 f32[2, 1, 8, 4] layers.0.attention.context.2 = attention_cached(%17, %18, %16, %19, %20, %12) {n_head=2, n_kv_head=1, scale=0.5}
%24 f32[2, 4, 8] layers.0.attention.o = matmul(%21, %4) {transpose_b=true}
%25 f32[2, 4, 8] layers.0.sum = combine(%13, %24) {coefs=[1, 1], constant=0}
%26 f32[2, 4, 8] layers.0.attention.norm.out = norm(%25, %5) {instance=rms_norm(affine=true, eps=1e-05, unit_offset=false)[8], train=false}
%27 f32[2, 4, 12] layers.0.mlp.gate = matmul(%26, %6) {transpose_b=true}
%28 f32[2, 4, 12] layers.0.mlp.up = matmul(%26, %7) {transpose_b=true}
%29 f32[2, 4, 12] layers.0.mlp.hidden = gated(%27, %28) {kind="silu"}
%30 f32[2, 4, 8] layers.0.mlp.down = matmul(%29, %8) {transpose_b=true}
%31 f32[2, 4, 8] layers.0.sum_2 = combine(%26, %30) {coefs=[1, 1], constant=0}
%32 f32[2, 4, 8] layers.0.mlp.norm.out = norm(%31, %9) {instance=rms_norm(affine=true, eps=1e-05, unit_offset=false)[8], train=false}
%33 f32[2, 1, 8] head.last_token = last_token(%32)
%34 f32[2, 1, 5] logits = matmul(%33, %10) {transpose_b=true}
output logits = %34
)graph");
}

// The graphs above do not show that all programs have the same ops.
TEST_F(BuildTest, EveryProgramEmitsTheSameFormulas) {
  TinyModel model;
  model.placement = "normformer";
  const std::string train = OpsOf(Build(model.Text(), Program::kTrain));
  EXPECT_EQ(OpsOf(Build(model.Text(), Program::kEval)), train);
  std::string cached = OpsOf(Build(model.Text(), Program::kCached, 1));
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
  const std::string expected = OpsOf(Build(none.Text(), Program::kTrain));
  for (const char* placement :
       {"pre", "post", "double", "peri", "olmo2", "bloom", "swin_v2", "qk_norm", "qk_norm_full",
        "olmo2_qk", "double_qk", "sub_ln", "hybrid_norm", "hybrid_norm_star"}) {
    TinyModel model;
    model.placement = placement;
    model.norm = "none";
    const Graph graph = Build(model.Text(), Program::kTrain);
    EXPECT_EQ(OpsOf(graph), expected) << placement;
    EXPECT_EQ(graph.values.size(), Build(none.Text(), Program::kTrain).values.size()) << placement;
  }
  none.norm = "rms_norm";  // no slot applies it
  EXPECT_EQ(OpsOf(Build(none.Text(), Program::kTrain)), expected);
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
