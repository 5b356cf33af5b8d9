// What every recipe must keep: bits over threads and over resuming, planned memory, in f32 and
// bf16.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "absl/strings/match.h"

#include "runtime/io/safetensors.h"
#include "tests/session/recipe_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

struct NamedRecipe {
  const char* name;
  const char* text;
};

constexpr NamedRecipe kRecipes[] = {
    {"plain", "schedule: COSINE"},
    {"rules",
     "rule { match: '*.norm.*' learning_rate: '0.1 * lr + 1e-4' weight_decay: '0' clip: '0.01' }"
     "rule { match: 'layers.*' tensors: MATRICES learning_rate: 'lr * 16 / fan_in' clip: '0.1' }"
     "rule { match: '*' tensors: VECTORS beta1: '0.8' eps: '1e-6' }"},
    {"wsd", "schedule: WSD cooldown_steps: 90 cooldown: ONE_MINUS_SQRT warmup: MULTIPLIES"},
    {"muon", "optimizer: MUON muon { learning_rate: '2 * lr' }"},
    {"muon_moonlight",
     "optimizer: MUON muon { scale: MATCH_ADAMW nesterov: false }"
     "rule { match: '*.k.weight' optimizer: ADAMW } rule { match: 'head.weight' optimizer: MUON "
     "clip: '0.1' }"},
    {"normalized",
     "normalize { match: '*.q.weight' axis: IN } normalize { match: '*.down.weight' axis: OUT } "
     "normalize { match: 'embedding.*' } ema_decay: 0.5"},
    {"average", "ema_decay: 0.9"},
    {"objective", "label_smoothing: 0.1 z_loss: 1e-3"},
};

class EveryRecipeTest : public RecipeTest,
                        public ::testing::WithParamInterface<std::tuple<NamedRecipe, DType>> {
 protected:
  TrainSpec Recipe() const {
    const auto& [recipe, dtype] = GetParam();
    TrainSpec spec = Spec(absl::StrCat(
        "batch_size: 4 learning_rate: 0.01 gradient_accumulation_steps: 2 max_steps: 100 "
        "warmup_steps: 3 ",
        recipe.text));
    spec.dtype = dtype;
    return spec;
  }
  // Wide enough that work is shared between threads.
  static TinyModel WideModel() {
    TinyModel model;
    model.norm = "layer_norm";
    model.n_head = model.n_kv_head = 4;
    model.d_model = 64;
    model.d_ff = 192;
    model.context_length = 32;
    model.vocab_size = 26;
    model.more = "mlp { bias: true }";
    return model;
  }

  const std::unique_ptr<ModelContext> context_ = MakeContext(runtime_.get(), WideModel().Text());
  const Dataset data_ = TextOf(2000, 26);
};

std::string RecipeName(const ::testing::TestParamInfo<std::tuple<NamedRecipe, DType>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", DTypeName(std::get<1>(info.param)));
}

TEST_P(EveryRecipeTest, TheSameBitsForAnyNumberOfThreads) {
  std::vector<float> expected;
  for (const int threads : {1, 2, 4}) {
    const auto session = Make(*context_, data_, Recipe(), threads);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->Step().ok());
    std::vector<float> got = Floats(session->parameters());
    if (session->average() != nullptr) {
      const std::vector<float> average = Floats(*session->average());
      EXPECT_NE(average, got);
      got.insert(got.end(), average.begin(), average.end());
    }
    if (expected.empty()) expected = got;
    EXPECT_EQ(got, expected) << threads;
  }
}

TEST_P(EveryRecipeTest, ResumesFromItsFilesBitForBit) {
  const ScratchDir scratch;
  const auto whole = Make(*context_, data_, Recipe());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(whole->Step().ok());
  ASSERT_TRUE(WriteSafetensors(scratch.File("model"), whole->parameters().Tensors()).ok());
  ASSERT_TRUE(WriteSafetensors(scratch.File("optimizer"), whole->optimizer().Tensors()).ok());
  if (whole->average() != nullptr) {
    ASSERT_TRUE(WriteSafetensors(scratch.File("average"), whole->average()->Tensors()).ok());
  }

  const auto rest = Make(*context_, data_, Recipe());
  if (whole->average() != nullptr) {
    ASSERT_TRUE(rest->average()->Read(*SafetensorsFile::Open(scratch.File("average"))).ok());
  }
  ASSERT_TRUE(rest->parameters().Read(*SafetensorsFile::Open(scratch.File("model"))).ok());
  const SafetensorsFile optimizer = *SafetensorsFile::Open(scratch.File("optimizer"));
  ASSERT_TRUE(rest->optimizer().Check(optimizer).ok());
  ASSERT_TRUE(rest->optimizer().Read(optimizer).ok());
  rest->ResumeAt(4);
  for (int i = 0; i < 3; ++i) {
    const auto a = whole->Step(), b = rest->Step();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->loss, b->loss);
    EXPECT_EQ(a->grad_norm, b->grad_norm);
    EXPECT_EQ(a->learning_rate, b->learning_rate);
  }
  EXPECT_EQ(Floats(rest->parameters()), Floats(whole->parameters()));
  if (whole->average() != nullptr) {
    EXPECT_EQ(Floats(*rest->average()), Floats(*whole->average()));
  }
  const auto states = whole->optimizer().Tensors(), others = rest->optimizer().Tensors();
  ASSERT_EQ(states.size(), others.size());
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(
        std::memcmp(states[i].data, others[i].data, static_cast<size_t>(states[i].type.bytes())), 0)
        << states[i].name;
  }
}

TEST_P(EveryRecipeTest, TheMemoryIsThatOfThePlan) {
  const auto session = Make(*context_, data_, Recipe());
  ASSERT_TRUE(session->Step().ok());
  const TrainMemory planned = session->planned_memory(), taken = session->memory();
  EXPECT_EQ(planned.moments, taken.moments);
  EXPECT_EQ(planned.average, taken.average);
  EXPECT_EQ(planned.total(), taken.total());
}

TEST_P(EveryRecipeTest, WhatIsNormalizedHasLengthOneFromTheBeginning) {
  const TrainSpec spec = Recipe();
  const auto session = Make(*context_, data_, spec);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> all = Floats(session->parameters());
    for (const ParameterLayout::Entry& entry : session->parameters().layout().entries) {
      const bool rows =
          absl::EndsWith(entry.name, ".q.weight") || absl::StartsWith(entry.name, "embedding.");
      if (spec.normalize.empty() || (!rows && !absl::EndsWith(entry.name, ".down.weight")))
        continue;
      const int64_t out = entry.shape[0], in = entry.shape[1];
      for (int64_t i = 0; i < (rows ? out : in); ++i) {
        double square = 0;
        for (int64_t k = 0; k < (rows ? in : out); ++k) {
          const int64_t at = entry.begin + (rows ? i * in + k : k * in + i);
          square += std::pow(static_cast<double>(all[static_cast<size_t>(at)]), 2);
        }
        ASSERT_NEAR(square, 1, 1e-6) << entry.name << " step " << step;
      }
    }
    ASSERT_TRUE(session->Step().ok());
  }
}

TEST_P(EveryRecipeTest, ItLearns) {
  TrainSpec spec = Recipe();
  const auto session = Make(*context_, data_, spec);
  const double first = session->Step()->loss;
  double last = 0;
  for (int i = 0; i < 30; ++i) last = session->Step()->loss;
  EXPECT_LT(last, 0.9 * first);
  EXPECT_TRUE(session->CheckFinite().ok());
}

INSTANTIATE_TEST_SUITE_P(Recipes, EveryRecipeTest,
                         ::testing::Combine(::testing::ValuesIn(kRecipes),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         RecipeName);

}  // namespace
}  // namespace plumb
