// SPDX-License-Identifier: Apache-2.0
// Tests of the graph passes on the models of all shipped placements: a program gives the same
// results with each pass as without, bit for bit if optimize.h promises that, and recomputing
// blocks changes only the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/compile/memory_plan.h"
#include "runtime/compile/optimize.h"
#include "runtime/session/packed_weights.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kSeq = 8;

// Two kinds of sublayers, GPT-2's and LLaMA's, in which every pass finds its patterns.
constexpr char kGpt2[] = R"pbtxt(
  tie_embeddings: true
  attention { bias: true }
  mlp { activation: GELU bias: true }
)pbtxt";
constexpr char kLlama[] = R"pbtxt(
  mlp { activation: SILU gated: true }
)pbtxt";

struct Case {
  std::string placement;
  std::string name;  // name of the sublayers and of the format
  std::string sublayers;
  WeightFormat format;
};

// Returns every placement in both formats. The kinds of sublayers alternate.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  bool turn = false;
  for (const std::string& placement : ShippedPlacements()) {
    cases.push_back(
        {placement, turn ? "llama_f32" : "gpt2_f32", turn ? kLlama : kGpt2, WeightFormat::kF32});
    cases.push_back(
        {placement, turn ? "gpt2_bf16" : "llama_bf16", turn ? kGpt2 : kLlama, WeightFormat::kBf16});
    turn = !turn;
  }
  return cases;
}

void PrintTo(const Case& c, std::ostream* os) { *os << c.placement << " " << c.name; }

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.placement, "_", info.param.name);
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : AllPasses()) names.push_back(pass.name);
  return names;
}

// Returns true if outputs keep every bit when the pass runs alone.
bool KeepsBits(const std::string& pass, WeightFormat format) {
  if (pass == "common-values" || pass == "dead-values" || pass == "share-operands") return true;
  return (pass == "fuse-activations" || pass == "fuse-residual-norms") &&
         format == WeightFormat::kF32;
}

class PassesTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelContext> Context(const std::string& placement, const std::string& sublayers,
                                        const std::string& norm = "layer_norm", int n_layer = 2) {
    TinyModel model;
    model.placement = placement;
    model.norm = norm;
    model.n_layer = placement == "swin_v2" ? 6 : n_layer;
    model.context_length = kSeq;
    model.more = sublayers;
    if (norm == "batch_norm") {
      model.norm = "bn";
      absl::StrAppend(&model.more, "norm { name: \"bn\" plugin: \"batch_norm\"",
                      " allow_cross_token: true }");
    }
    return MakeContext(runtime_.get(), model.Text());
  }

  // Results of a program. Gradients are in the layout of the parameters.
  struct Results {
    float loss;
    std::vector<float> gradients;
  };

  static Results Run(const ModelContext& context, WeightFormat format, bool gradients = true,
                     int threads = 1) {
    const ParameterStore parameters = GenericParameters(context);
    const PackedWeights weights(context, format, parameters);
    const Tokens tokens = RandomTokens(kBatch, kSeq, 5);
    AlignedBuffer ids(kBatch * kSeq * 4), positions(ids.size()), targets(ids.size());
    for (int32_t i = 0; i < kBatch * kSeq; ++i) {
      const size_t row = static_cast<size_t>(i / kSeq), t = static_cast<size_t>(i % kSeq);
      ids.as<int32_t>()[i] = tokens[row][t];
      positions.as<int32_t>()[i] = static_cast<int32_t>(i % kSeq);
      targets.as<int32_t>()[i] = t + 1 < tokens[row].size() ? tokens[row][t + 1] : -1;
    }
    const AlignedBuffer random(kAlignment);
    AlignedBuffer loss(4), states(parameters.states().size * 4 + 4);
    AlignedBuffer grads(parameters.layout().size * 4);
    std::copy_n(parameters.state_data(), parameters.states().size, states.as<float>());

    BuildOptions options = Program(gradients, format);
    ExecutableCache executables(&context, options, gradients);
    const absl::StatusOr<const Executable*> executable =
        executables.Get(kSeq, [&](Executable* made) -> absl::Status {
          absl::Status status = weights.BindWeights(made);
          status.Update(parameters.states().Bind(states.as<float>(), made));
          if (gradients) status.Update(parameters.layout().Bind("grad.", grads.as<float>(), made));
          status.Update(made->Bind("tokens", ids.data()));
          status.Update(made->Bind("positions", positions.data()));
          status.Update(made->Bind("targets", targets.data()));
          status.Update(made->Bind("loss", loss.data()));
          status.Update(BindRandom(random, made));
          return status;
        });
    EXPECT_TRUE(executable.ok()) << executable.status();
    if (!executable.ok()) return {};
    const absl::Status status = (*executable)->Run(threads);
    EXPECT_TRUE(status.ok()) << status;
    const float* first = grads.as<float>();
    return {*loss.as<float>(), gradients
                                   ? std::vector<float>(first, first + parameters.layout().size)
                                   : std::vector<float>()};
  }

  static BuildOptions Program(bool gradients, WeightFormat format) {
    BuildOptions options;
    options.program = gradients ? plumb::Program::kTrain : plumb::Program::kEval;
    options.batch = kBatch;
    options.seq = kSeq;
    options.weights = format;
    options.drop = false;  // the losses of training and evaluation are then equal
    return options;
  }

  static Graph TrainProgram(const ModelContext& context, WeightFormat format = WeightFormat::kF32) {
    const absl::StatusOr<Graph> graph = BuildProgram(context, Program(true, format), true);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *graph : Graph();
  }

  static void ExpectNear(const Results& got, const Results& want, double tolerance) {
    EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
    EXPECT_LT(RelativeError(got.gradients, want.gradients), tolerance);
  }

  static void ExpectSameBits(const Results& got, const Results& want) {
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.gradients, want.gradients);
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

class PlacementPassesTest : public PassesTest, public ::testing::WithParamInterface<Case> {};

TEST_P(PlacementPassesTest, KeepResultsInAnyCombination) {
  const Case& c = GetParam();
  const std::unique_ptr<ModelContext> context = Context(c.placement, c.sublayers);
  for (const bool gradients : {true, false}) {
    context->optimize.disabled = PassNames();
    const Results plain = Run(*context, c.format, gradients);
    double tolerance = 1e-4;
    if (c.format == WeightFormat::kBf16) {
      // The passes round fewer and other values, so results may change by a few times the
      // difference of bf16 and f32: up to 3.2 times are seen (seednorm).
      const Results exact = Run(*context, WeightFormat::kF32, gradients);
      tolerance = std::max(0.035, 4 * RelativeError(plain.gradients, exact.gradients));
      if (tolerance >= 0.75) GTEST_SKIP() << "bf16 alone changes its gradients by a quarter";
    }
    context->optimize.disabled.clear();
    const Results all = Run(*context, c.format, gradients);
    ExpectSameBits(Run(*context, c.format, gradients, /*threads=*/2), all);
    ExpectNear(all, plain, tolerance);
    if (!gradients && c.format == WeightFormat::kBf16) continue;  // fewer nodes, the same kinds
    for (const std::string& pass : PassNames()) {
      SCOPED_TRACE(absl::StrCat("without ", pass));
      context->optimize.disabled = {pass};
      const Results without = Run(*context, c.format, gradients);
      ExpectNear(without, all, tolerance);
      // The pass runs alone, because with others it would change what they fuse.
      if (!KeepsBits(pass, c.format)) continue;
      context->optimize = OnlyPasses({pass});
      ExpectSameBits(Run(*context, c.format, gradients), plain);
      context->optimize = OptimizeOptions();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, PlacementPassesTest, ::testing::ValuesIn(Cases()), CaseName);

class RecomputeTest : public PassesTest, public ::testing::WithParamInterface<Case> {};

TEST_P(RecomputeTest, TakesLessMemoryAndKeepsEveryBit) {
  const Case& c = GetParam();
  const std::unique_ptr<ModelContext> context =
      Context(c.placement, c.sublayers, "layer_norm", /*n_layer=*/3);
  const Results kept = Run(*context, c.format);
  const int64_t kept_bytes = PlanMemory(TrainProgram(*context, c.format))->arena_bytes;
  context->optimize.recompute_blocks = true;
  ExpectSameBits(Run(*context, c.format, /*gradients=*/true, /*threads=*/2), kept);
  EXPECT_LT(10 * PlanMemory(TrainProgram(*context, c.format))->arena_bytes, 8 * kept_bytes);
}

INSTANTIATE_TEST_SUITE_P(Shipped, RecomputeTest, ::testing::ValuesIn(Cases()), CaseName);

// Computing a norm over the tokens of a call updates its buffers, so it must happen once per step.
TEST_F(PassesTest, RecomputingRepeatsNoUpdate) {
  for (const char* placement : {"pre", "post", "double"}) {
    const std::unique_ptr<ModelContext> context =
        Context(placement, kGpt2, "batch_norm", /*n_layer=*/4);
    const auto count_updates = [&] {
      int updates = 0;
      for (const Node& node : TrainProgram(*context).nodes) updates += !node.op->updates.empty();
      return updates;
    };
    const int updates = count_updates();
    const Results kept = Run(*context, WeightFormat::kF32);
    context->optimize.recompute_blocks = true;
    EXPECT_EQ(count_updates(), updates) << placement;
    ExpectSameBits(Run(*context, WeightFormat::kF32), kept);
  }
}

TEST_F(PassesTest, FindTheirPatternsInATransformer) {
  const auto count = [this](const std::string& sublayers) {
    std::map<std::string, int> ops;
    for (const Node& node : TrainProgram(*Context("pre", sublayers)).nodes) {
      ++ops[node.op->name];
      if (node.op->name == "embedding_grad" && node.inputs.size() == 3) ++ops["accumulated"];
    }
    return ops;
  };
  std::map<std::string, int> gpt2 = count(kGpt2);
  EXPECT_EQ(gpt2["matmul_act"], 2);  // the hidden values of each layer
  EXPECT_EQ(gpt2["matmul_act_grad"], 2);
  EXPECT_EQ(gpt2["act"] + gpt2["act_grad"], 0);
  EXPECT_EQ(gpt2["matmul_shared"], 2);  // q, k, v
  EXPECT_EQ(gpt2["matmul_sum"], 2);     // the gradients of their inputs
  EXPECT_EQ(gpt2["matmul_add"], 4);     // both residual sums
  EXPECT_EQ(gpt2["combine"], 0);
  EXPECT_EQ(gpt2["accumulated"], 1);  // the tied table is also the head
  std::map<std::string, int> llama = count(kLlama);
  EXPECT_EQ(llama["matmul_shared"], 4);  // gate and up, too
  EXPECT_EQ(llama["matmul_sum"], 4);
  EXPECT_EQ(llama["matmul_add"], 4);
}

TEST_F(PassesTest, SumSquaresRightAfterEachGradient) {
  for (const char* norm : {"layer_norm", "scale_norm", "dyt"}) {  // gains are vectors or f32[]
    SCOPED_TRACE(norm);
    const std::unique_ptr<ModelContext> context = Context("pre", kGpt2, norm);
    context->optimize.gradient_norms = true;
    const Graph graph = TrainProgram(*context);
    const ParameterStore parameters = GenericParameters(*context);
    const auto results = ReferenceRun(graph, Feeds(parameters, RandomTokens(kBatch, kSeq, 5)));
    ASSERT_TRUE(results.ok()) << results.status();
    int squares = 0;
    for (const ParameterSpec& parameter : context->parameters) {
      const std::string name = absl::StrCat("grad_square.", parameter.name);
      double want = 0;
      for (const double g : results->at(absl::StrCat("grad.", parameter.name)).f) want += g * g;
      ASSERT_TRUE(results->count(name)) << name;
      EXPECT_NEAR(results->at(name).f[0], want, 1e-9 * want) << name;
      const Node& node =
          graph.nodes[static_cast<size_t>(graph.value(graph.FindOutput(name)).producer)];
      const int32_t made = graph.value(node.inputs[0]).producer;
      int32_t next = made + 1;  // gradients of one node follow each other
      while (graph.nodes[static_cast<size_t>(next)].op->name == "sum_squares" &&
             graph.nodes[static_cast<size_t>(next)].outputs[0] != graph.FindOutput(name)) {
        ++next;
      }
      EXPECT_EQ(graph.nodes[static_cast<size_t>(next)].outputs[0], graph.FindOutput(name)) << name;
      ++squares;
    }
    EXPECT_GT(squares, 20);
    ASSERT_TRUE(Executable::Compile(graph).ok());
  }
}

}  // namespace
}  // namespace plumb
