// SPDX-License-Identifier: Apache-2.0
// Guarantees of every way to train: the bits of a run do not depend on the number of threads,
// recomputation of blocks, or an interruption and resumption, and a run allocates the planned
// memory.
#include <cmath>

#include "absl/strings/match.h"
#include "runtime/formats/safetensors.h"
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

struct TrainCase {
  std::string name;
  TinyModel model;
  std::string recipe;
  Dataset (*data)() = nullptr;
};
void PrintTo(const TrainCase& train_case, std::ostream* os) { *os << train_case.name; }

Dataset Letters() { return TextDataset(2000, 26); }
Dataset FewLetters() { return TextDataset(300, 5); }
Dataset DocumentsOfManyLengths() { return Documents(40, 2, 11); }

// Returns a model wide enough that work is shared between threads.
TinyModel ModelForThreads(const std::string& placement = "pre") {
  TinyModel model;
  model.placement = placement;
  model.norm = "layer_norm";
  model.n_head = model.n_kv_head = 4;
  model.d_model = 64;
  model.d_ff = 192;
  model.context_length = 32;
  model.vocab_size = 26;
  model.more = "mlp { bias: true }";
  return model;
}

// Documents of many lengths run through several executables, which share one state.
TinyModel WithRunningStatistics() {
  TinyModel model = ModelForThreads();
  model.norm = "n";
  model.vocab_size = 6;
  model.more = "norm { name: \"n\" plugin: \"batch_norm\" allow_cross_token: true }";
  return model;
}

TinyModel WithDropout() {
  TinyModel model = ModelForThreads("mine");
  model.n_layer = 3;
  model.more =
      "placement { name: \"mine\" block: \"x = x + drop(attention(norm_1(x)), 0.2)\" "
      "block: \"x = x + drop_path(min(1, step / 4) * mlp(norm_2(x)), 0.3 * layer / n_layer)\" "
      "end: \"x = norm(x)\" }";
  return model;
}

TinyModel WithCorrections() {
  TinyModel model = ModelForThreads();
  model.block =
      "sublayer { attention {} } sublayer { experts { n_expert: \"6\" top_k: \"2\" d_ff: \"48\" "
      "router: SIGMOID renormalize: true correction: true } }";
  return model;
}

TinyModel Masked() {
  TinyModel model = ModelForThreads();
  model.vocab_size = 7;  // letters a..e, the begin/end token, the mask
  model.more = "bidirectional: true token_types: 2";
  return model;
}

constexpr char kEveryStep[] =
    "batch_size: 4 learning_rate: 0.01 gradient_accumulation_steps: 2 max_steps: 100 "
    "warmup_steps: 3 ";

std::vector<TrainCase> InBothTypes(std::vector<TrainCase> cases) {
  for (size_t i = 0, n = cases.size(); i < n; ++i) {
    TrainCase bf16 = cases[i];
    bf16.name += "_bf16";
    bf16.recipe += " dtype: BF16";
    cases.push_back(std::move(bf16));
  }
  return cases;
}

std::vector<TrainCase> RecipeCases() {
  std::vector<TrainCase> cases;
  for (const NamedRecipe& recipe : kRecipes) {
    cases.push_back(
        {recipe.name, ModelForThreads(), absl::StrCat(kEveryStep, recipe.text), Letters});
  }
  return InBothTypes(std::move(cases));
}

std::vector<TrainCase> ModelCases() {
  TinyModel large = ModelForThreads("double_qk");
  large.d_model = 128;
  large.d_ff = 512;
  large.context_length = 64;
  TinyModel decays = ModelForThreads();
  decays.more = "attention { decay: true }";
  return InBothTypes({
      {"large", large, "batch_size: 8", Letters},
      {"dropout", WithDropout(), kEveryStep, Letters},
      {"frozen", ModelForThreads(),
       absl::StrCat(kEveryStep, "ema_decay: 0.5 rule { match: 'layers.1.*' } ",
                    "rule { match: '*' freeze: true }"),
       Letters},
      {"linear_attention", WithLinearAttention(ModelForThreads()), kEveryStep, Letters},
      {"decays", decays, kEveryStep, Letters},
      {"statistics", WithRunningStatistics(), kEveryStep, DocumentsOfManyLengths},
      {"corrections", WithCorrections(),
       absl::StrCat(kEveryStep, "router_correction_rate: 0.01 ema_decay: 0.5"), Letters},
      {"masked", Masked(), absl::StrCat(kEveryStep, "masked_tokens {}"), DocumentsOfManyLengths},
  });
}

std::vector<TrainCase> PlacementCases() {
  std::vector<TrainCase> cases;
  for (const std::string& placement : ShippedPlacements()) {
    TinyModel model;
    model.placement = placement;
    model.n_layer = placement == "swin_v2" ? 6 : 2;
    model.n_kv_head = 1;
    cases.push_back({placement, model, "batch_size: 3 learning_rate: 0.01", FewLetters});
  }
  return cases;
}

class TrainBitsTest : public RecipeTest, public ::testing::WithParamInterface<TrainCase> {
 protected:
  std::unique_ptr<TrainSession> MakeCase(int threads = 1, const char* more = "") const {
    return Make(*context_, data_, Spec(absl::StrCat(GetParam().recipe, " ", more)), threads);
  }
  // Returns all numbers that a session has after some steps.
  static std::vector<float> Numbers(TrainSession* session) {
    std::vector<float> numbers = Floats(session->parameters());
    const auto add = [&numbers](const float* begin, int64_t n) {
      numbers.insert(numbers.end(), begin, begin + n);
    };
    add(session->parameters().state_data(), session->parameters().states().size);
    for (const TensorToWrite& tensor : session->optimizer().Tensors()) {
      add(static_cast<const float*>(tensor.data), tensor.type.num_elements());
    }
    if (session->average() != nullptr) {
      const std::vector<float> average = Floats(*session->average());
      add(average.data(), static_cast<int64_t>(average.size()));
    }
    return numbers;
  }

  const std::unique_ptr<ModelContext> context_ =
      MakeContext(runtime_.get(), GetParam().model.Text());
  const Dataset data_ = GetParam().data();
};

TEST_P(TrainBitsTest, DoNotDependOnThreadsOrRecomputation) {
  const auto one = MakeCase();
  const std::vector<double> losses = Losses(one.get(), 4);
  const std::vector<float> numbers = Numbers(one.get());
  for (const int threads : {2, 4}) {
    const auto more = MakeCase(threads);
    EXPECT_EQ(Losses(more.get(), 4), losses) << threads;
    EXPECT_EQ(Numbers(more.get()), numbers) << threads;
  }
  const auto again = MakeCase(1, "recompute: BLOCK");
  EXPECT_EQ(Losses(again.get(), 4), losses);
  EXPECT_EQ(Numbers(again.get()), numbers);
}

TEST_P(TrainBitsTest, AreKeptByResuming) {
  const auto whole = MakeCase();
  Losses(whole.get(), 3);
  const ScratchDir scratch;
  ASSERT_TRUE(WriteSafetensors(scratch.File("model"), whole->parameters().Tensors()).ok());
  ASSERT_TRUE(WriteSafetensors(scratch.File("optimizer"), whole->optimizer().Tensors()).ok());
  if (whole->average() != nullptr) {
    ASSERT_TRUE(WriteSafetensors(scratch.File("average"), whole->average()->Tensors()).ok());
  }

  const auto rest = MakeCase();
  if (rest->average() != nullptr) {
    ASSERT_TRUE(rest->average()->Read(*SafetensorsFile::Open(scratch.File("average"))).ok());
  }
  ASSERT_TRUE(rest->parameters().Read(*SafetensorsFile::Open(scratch.File("model"))).ok());
  const SafetensorsFile optimizer = *SafetensorsFile::Open(scratch.File("optimizer"));
  ASSERT_TRUE(rest->optimizer().Check(optimizer).ok());
  ASSERT_TRUE(rest->optimizer().Read(optimizer).ok());
  rest->ResumeAt(whole->step());
  EXPECT_EQ(Losses(rest.get(), 3), Losses(whole.get(), 3));
  EXPECT_EQ(Numbers(rest.get()), Numbers(whole.get()));
}

TEST_P(TrainBitsTest, TakeThePlannedMemory) {
  const auto session = MakeCase();
  ASSERT_TRUE(session->Step().ok());
  const TrainMemory planned = session->planned_memory(), taken = session->memory();
  EXPECT_EQ(planned.inputs, taken.inputs);
  EXPECT_EQ(planned.moments, taken.moments);
  EXPECT_EQ(planned.average, taken.average);
  EXPECT_EQ(planned.total(), taken.total());
}

std::string NameOfCase(const ::testing::TestParamInfo<TrainCase>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(Models, TrainBitsTest, ::testing::ValuesIn(ModelCases()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Recipes, TrainBitsTest, ::testing::ValuesIn(RecipeCases()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Placements, TrainBitsTest, ::testing::ValuesIn(PlacementCases()),
                         NameOfCase);

class RecipeCaseTest : public TrainBitsTest {};

TEST_P(RecipeCaseTest, NormalizedRowsHaveLengthOne) {
  const TrainSpec spec = Spec(GetParam().recipe);
  const auto session = MakeCase();
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(session->Step().ok());
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
  }
}

TEST_P(RecipeCaseTest, LossFalls) {
  const auto session = MakeCase();
  const double first = session->Step()->loss;
  double last = 0;
  for (int i = 0; i < 30; ++i) last = session->Step()->loss;
  EXPECT_LT(last, 0.9 * first);
  EXPECT_TRUE(session->CheckFinite().ok());
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeCaseTest, ::testing::ValuesIn(RecipeCases()), NameOfCase);

}  // namespace
}  // namespace plumb
