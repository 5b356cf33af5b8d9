// SPDX-License-Identifier: Apache-2.0
// Compares the training of some tensors, all others frozen, with the training of all of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/optimizer.h"
#include "tests/session/recipe_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Frozen {
  const char* name;
  const char* rules;
};
const Frozen kFrozen[] = {
    {"lower_layers",
     "rule { match: 'layers.1.*' } rule { match: 'head.*' } "
     "rule { match: '*' freeze: true }"},
    {"upper_layers",
     "rule { match: 'layers.1.*' freeze: true } rule { match: 'head.*' freeze: true }"},
    {"matrices", "rule { match: '*' tensors: MATRICES freeze: true }"},
    {"vectors", "rule { match: '*' tensors: VECTORS freeze: true }"},
    {"all_but_queries", "rule { match: '*.q.weight' } rule { match: '*' freeze: true }"},
    {"embedding", "rule { match: 'embedding.*' freeze: true }"},
    {"all_but_the_embedding",
     "rule { match: 'embedding.token.*' } rule { match: '*' freeze: true }"},
};

struct Setting {
  const char* name;
  const char* recipe;
  const char* model;  // further fields
};
const Setting kSettings[] = {
    {"f32", "", ""},
    {"bf16", "dtype: BF16", ""},
    {"recompute", "recompute: BLOCK", ""},
    {"bf16_recompute", "dtype: BF16 recompute: BLOCK", ""},
    {"muon", "optimizer: MUON", ""},
    {"units", "units: 4 ema_decay: 0.5", ""},
    {"objective", "label_smoothing: 0.1 z_loss: 1e-3", ""},
    {"tied", "", "tie_embeddings: true"},
    {"tied_bf16", "dtype: BF16", "tie_embeddings: true"},
};

class FreezeTest : public RecipeTest,
                   public ::testing::WithParamInterface<std::tuple<Frozen, Setting>> {
 protected:
  static std::string Recipe(const std::string& rules) {
    return absl::StrCat("batch_size: 4 learning_rate: 0.05 grad_clip: 0 ",
                        std::get<1>(GetParam()).recipe, " ", rules);
  }
  static std::string Text() {
    TinyModel model = SmallModel();
    absl::StrAppend(&model.more, " ", std::get<1>(GetParam()).model);
    return model.Text();
  }
  static std::vector<float> Weight(const ParameterStore& store, size_t i) {
    const ParameterLayout::Entry& entry = store.layout().entries[i];
    std::vector<float> values(static_cast<size_t>(entry.end - entry.begin));
    store.Read(i, 0, entry.end - entry.begin, values.data());
    return values;
  }
  static std::vector<std::vector<float>> Weights(const ParameterStore& store) {
    std::vector<std::vector<float>> weights;
    for (size_t i = 0; i < store.layout().entries.size(); ++i) weights.push_back(Weight(store, i));
    return weights;
  }
};

TEST_P(FreezeTest, TrainedTensorsGetTheirFullGradients) {
  const auto context = MakeContext(runtime_.get(), Text());
  const Dataset data = Documents(64, 5, 5);
  const auto whole = Make(*context, data, Spec(Recipe("")));
  const auto part = Make(*context, data, Spec(Recipe(std::get<0>(GetParam()).rules)));
  ASSERT_TRUE(whole != nullptr && part != nullptr);
  const auto before = Weights(part->parameters());
  const auto first = whole->Step(), frozen_first = part->Step();
  ASSERT_TRUE(first.ok() && frozen_first.ok()) << frozen_first.status();
  EXPECT_EQ(first->loss, frozen_first->loss);
  const ParameterLayout &all = whole->gradient_layout(), &trained = part->gradient_layout();
  int frozen = 0;
  double square = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const ParameterLayout::Entry &a = all.entries[i], &b = trained.entries[i];
    SCOPED_TRACE(a.name);
    const std::vector<float> now = Weight(part->parameters(), i);
    if (b.is_frozen()) {
      ++frozen;
      EXPECT_EQ(now, before[i]);
      EXPECT_TRUE(part->optimizer().GetStates(i).empty());
      continue;
    }
    ASSERT_EQ(b.end - b.begin, a.end - a.begin);
    const size_t bytes = static_cast<size_t>(a.end - a.begin) * sizeof(float);
    EXPECT_EQ(0, std::memcmp(part->gradients() + b.begin, whole->gradients() + a.begin, bytes));
    EXPECT_NE(now, before[i]);
    EXPECT_EQ(now, Weight(whole->parameters(), i));
    square += SumOfSquares(part->gradients() + b.begin, b.end - b.begin, 1);
  }
  EXPECT_GT(frozen, 0);
  EXPECT_LT(frozen, static_cast<int>(before.size()));
  EXPECT_NEAR(frozen_first->grad_norm, std::sqrt(square), 1e-5 * std::sqrt(square));
  EXPECT_LT(frozen_first->grad_norm, first->grad_norm);
  // Later steps.
  Losses(part.get(), 3);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(Weight(part->parameters(), i) == before[i], trained.entries[i].is_frozen());
  }
  if (part->average() == nullptr) return;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(Weight(*part->average(), i) == before[i], trained.entries[i].is_frozen());
  }
}

TEST_P(FreezeTest, FreezingReducesPlannedMemory) {
  const auto context = MakeContext(runtime_.get(), Text());
  const Dataset data = Documents(64, 5, 5);
  const TrainSpec spec = Spec(Recipe(std::get<0>(GetParam()).rules));
  const auto whole = Make(*context, data, Spec(Recipe("")));
  const auto part = Make(*context, data, spec);
  ASSERT_TRUE(whole->Step().ok() && part->Step().ok());
  const TrainMemory memory = part->memory(), &all = whole->memory();
  const auto planned = PlanTrainMemory(*context, spec, part->max_seq());
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(memory.gradients, planned->gradients);
  EXPECT_EQ(memory.moments, planned->moments);
  EXPECT_EQ(memory.workspace, planned->workspace);
  EXPECT_EQ(memory.total(), planned->total());
  EXPECT_EQ(memory.gradients * whole->gradient_layout().size,
            all.gradients * part->gradient_layout().size);
  EXPECT_LT(memory.gradients, all.gradients);
  EXPECT_LT(memory.moments, all.moments);
  EXPECT_LE(memory.workspace, all.workspace);
  EXPECT_EQ(memory.weights, all.weights);
}

INSTANTIATE_TEST_SUITE_P(All, FreezeTest,
                         ::testing::Combine(::testing::ValuesIn(kFrozen),
                                            ::testing::ValuesIn(kSettings)),
                         [](const auto& at) {
                           return absl::StrCat(std::get<0>(at.param).name, "_",
                                               std::get<1>(at.param).name);
                         });

class FreezeRulesTest : public RecipeTest {};

// Values whose other readers were gradients of frozen tensors may be fused, which changes rounding.
TEST_F(FreezeRulesTest, GradientsEqualUnfrozenGradients) {
  const Dataset data = Documents(64, 5, 5);
  for (const std::string& placement : ShippedPlacements()) {
    SCOPED_TRACE(placement);
    TinyModel model;
    model.vocab_size = 6;
    model.placement = placement;
    model.more = "mlp { bias: true }";
    const auto context = MakeContext(runtime_.get(), model.Text());
    const std::string recipe = "batch_size: 2 grad_clip: 0 ";
    const auto whole = Make(*context, data, Spec(recipe));
    ASSERT_TRUE(whole->Step().ok());
    for (const char* tensors : {"MATRICES", "VECTORS"}) {
      const auto part = Make(
          *context, data,
          Spec(absl::StrCat(recipe, "rule { match: '*' tensors: ", tensors, " freeze: true }")));
      ASSERT_TRUE(part->Step().ok());
      for (size_t i = 0; i < context->parameters.size(); ++i) {
        const ParameterLayout::Entry& entry = part->gradient_layout().entries[i];
        const float* const got = part->gradients() + entry.begin;
        const float* const want = whole->gradients() + whole->gradient_layout().entries[i].begin;
        double largest = 0, difference = 0;
        for (int64_t e = 0; e < entry.end - entry.begin; ++e) {
          largest = std::max(largest, std::fabs(static_cast<double>(want[e])));
          difference = std::max(difference, std::fabs(static_cast<double>(got[e] - want[e])));
        }
        EXPECT_LE(difference, 1e-5 * largest) << entry.name;
      }
    }
  }
}

// The gradients are scaled by the bound over the norm of those that are trained.
TEST_F(FreezeRulesTest, OnlyTrainedTensorsCountForClipping) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const Dataset data = Documents(64, 5, 5);
  const auto session = Make(*context, data,
                            Spec("batch_size: 4 beta1: 0 grad_clip: 0.01 rule { match: '*.up.*' } "
                                 "rule { match: '*' freeze: true }"));
  const auto step = session->Step();
  ASSERT_TRUE(step.ok());
  ASSERT_GT(step->grad_norm, 0.01);
  const int64_t n = session->gradient_layout().size;
  EXPECT_NEAR(step->grad_norm, std::sqrt(SumOfSquares(session->gradients(), n, 1)), 1e-6);
  double square = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double m = static_cast<double>(session->first_moments()[i]);
    square += m * m;
  }
  EXPECT_NEAR(std::sqrt(square), 0.01, 1e-6);
}

// A weight of layer 1 is trained: gradients of frozen weights, and those below it, are not
// computed.
TEST_F(FreezeRulesTest, BackwardPassEndsAtTheFirstTrainedTensor) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const TrainSpec spec =
      Spec("rule { match: 'layers.1.attention.q.*' } rule { match: '*' freeze: true }");
  const auto updates = PlanUpdates(spec, context->model, context->parameters);
  ASSERT_TRUE(updates.ok()) << updates.status();
  BuildOptions options = TrainProgram(spec, updates->frozen);
  options.seq = 6;
  const auto graph =
      BuildProgram(*context, options, /*gradients=*/true, TrainPasses(*context, spec));
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<std::string> gradients;
  for (const Value& value : graph->values) {
    if (absl::StartsWith(value.name, "grad.")) gradients.push_back(value.name);
  }
  EXPECT_THAT(gradients,
              AllOf(Contains("grad.layers.1.attention.q.weight"),
                    Not(Contains("grad.layers.1.mlp.up.weight")), Not(Contains("grad.head.weight")),
                    Not(Contains("grad.layers.1.attention.norm.out")),
                    Not(Contains("grad.layers.1.attention.v")),
                    Not(Contains(HasSubstr("layers.0"))), Not(Contains(HasSubstr("embedding")))));
  EXPECT_EQ(graph->outputs.size(), 2u) << "the loss and one gradient";
}

TEST_F(FreezeRulesTest, SharedLayersAndMaskedTokensAreTrainedInPart) {
  TinyModel model = SmallModel();
  model.more = "bidirectional: true";
  model.block = "share: \"all\" own_norms: true";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  const auto make = [&](const char* rules) {
    return Make(
        *context, data,
        Spec(absl::StrCat("batch_size: 4 grad_clip: 0 masked_tokens { share: 0.5 } ", rules)));
  };
  const auto whole = make(""),
             part = make("rule { match: '*.up.*' } rule { match: '*' freeze: true }");
  ASSERT_TRUE(whole != nullptr && part != nullptr);
  ASSERT_TRUE(whole->Step().ok() && part->Step().ok());
  int trained = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterLayout::Entry& entry = part->gradient_layout().entries[i];
    if (entry.is_frozen()) continue;
    ++trained;
    EXPECT_EQ(entry.name, "layers.0.mlp.up.weight");
    EXPECT_EQ(0, std::memcmp(part->gradients() + entry.begin,
                             whole->gradients() + whole->gradient_layout().entries[i].begin,
                             static_cast<size_t>(entry.end - entry.begin) * sizeof(float)));
  }
  EXPECT_EQ(trained, 1) << "the layers share it";
}

TEST_F(FreezeRulesTest, RouterCorrectionsAreKept) {
  TinyModel model = SmallModel();
  model.more = "";
  model.block =
      "sublayer { attention {} } sublayer { experts { n_expert: \"5\" top_k: \"2\" router: SIGMOID "
      "correction: true } }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  const auto session =
      Make(*context, data,
           Spec("batch_size: 4 router_correction_rate: 0.5 rule { match: 'head.*' } "
                "rule { match: '*' freeze: true }"));
  ASSERT_NE(session, nullptr);
  const std::vector<float> before = Floats(session->parameters());
  ASSERT_TRUE(session->Step().ok());
  const std::vector<float> after = Floats(session->parameters());
  int corrections = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterLayout::Entry& entry = session->parameters().layout().entries[i];
    const bool changed = !std::equal(after.begin() + entry.begin, after.begin() + entry.end,
                                     before.begin() + entry.begin);
    const bool is_correction = context->parameters[i].is_correction;
    corrections += is_correction;
    EXPECT_EQ(changed, is_correction || absl::StartsWith(entry.name, "head.")) << entry.name;
  }
  EXPECT_GT(corrections, 0);
}

TEST_F(FreezeRulesTest, FrozenTensorsAreNoProbePoints) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const Dataset data = Documents(64, 5, 5);
  const auto session = Make(*context, data,
                            Spec("batch_size: 4 rule { match: 'layers.1.mlp.*' } "
                                 "rule { match: '*' freeze: true }"));
  ASSERT_TRUE(session->SetProbe(1, {}).ok());
  ASSERT_TRUE(session->Step().ok());
  const ProbeResult& result = *session->probe();
  ASSERT_FALSE(result.parameters.empty());
  double square = 0;
  for (const ProbeResult::Parameter& parameter : result.parameters) {
    EXPECT_THAT(parameter.name, HasSubstr("layers.1.mlp."));
    square += parameter.gradient.sum_squares;
  }
  const int64_t n = session->gradient_layout().size;
  EXPECT_NEAR(square, SumOfSquares(session->gradients(), n, 1), 1e-6 * square);
  for (const ProbeResult::Tensor& tensor : result.gradients) {
    EXPECT_THAT(tensor.name, Not(HasSubstr("layers.0")));
    EXPECT_GT(tensor.stats.count, 0) << tensor.name;
  }
  const std::vector<std::string> below = {"grad.layers.0.residual"};
  EXPECT_EQ(session->SetProbe(1, below).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
