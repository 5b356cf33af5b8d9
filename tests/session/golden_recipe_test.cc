// SPDX-License-Identifier: Apache-2.0
// Compares training with tests/golden/recipes: the same steps in PyTorch, written from the papers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/file.h"
#include "runtime/formats/safetensors.h"
#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

std::string Golden(const std::string& name) {
  return absl::StrCat(PLUMB_SOURCE_DIR, "/tests/golden/", name);
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Golden("recipes"))) {
    if (entry.path().extension() == ".pbtxt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Batches of tokens.json: [step][row][seq + 1] token ids.
class GoldenBatches : public BatchSource {
 public:
  GoldenBatches() {
    std::ifstream json(Golden("recipes/tokens.json"));
    steps_ = nlohmann::json::parse(json).get<std::vector<Tokens>>();
  }
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }
  int64_t max_seq() const override { return static_cast<int64_t>(steps_[0][0].size()) - 1; }
  Batch MakeBatch() const override {
    Batch batch;
    batch.batch = static_cast<int64_t>(steps_[0].size());
    batch.seq = max_seq();
    batch.valid_targets = batch.batch * batch.seq;
    for (int64_t row = 0; row < batch.batch; ++row) {
      for (int64_t i = 0; i < batch.seq; ++i) batch.positions.push_back(static_cast<int32_t>(i));
    }
    batch.tokens = batch.targets = batch.positions;
    return batch;
  }
  void Fill(int64_t index, Batch* batch) override {
    auto token = batch->tokens.begin(), target = batch->targets.begin();
    for (const std::vector<int32_t>& row : steps_[static_cast<size_t>(index)]) {
      token = std::copy(row.begin(), row.end() - 1, token);
      target = std::copy(row.begin() + 1, row.end(), target);
    }
  }

 private:
  std::vector<Tokens> steps_;
};

class GoldenRecipeTest : public RecipeTest, public ::testing::WithParamInterface<std::string> {
 protected:
  static void ExpectNear(const std::vector<float>& got, const SafetensorsFile& file,
                         const std::string& name) {
    const TensorEntry* tensor = file.Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    std::vector<float> want(tensor->data.size() / sizeof(float));
    std::memcpy(want.data(), tensor->data.data(), tensor->data.size());
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::fabs(want[i]))) << name << " " << i;
    }
  }
};

TEST_P(GoldenRecipeTest, TwentyStepsMatchPyTorch) {
  const auto context = MakeContext(runtime_.get(), *ReadFile(Golden("pre/model.pbtxt")));
  const TrainSpec spec = Spec(*ReadFile(Golden(absl::StrCat("recipes/", GetParam(), ".pbtxt"))));
  ParameterStore store(context->parameters, context->states);
  ASSERT_TRUE(store.Read(*SafetensorsFile::Open(Golden("pre/weights.safetensors"))).ok());
  auto batches = std::make_unique<GoldenBatches>();
  const int64_t steps = batches->steps();
  const auto session = TrainSession::Create(
      context.get(), [&store] { return &store; }, std::move(batches), spec, 1);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> losses;
  for (int64_t i = 0; i < steps; ++i) {
    const auto step = (*session)->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    losses.push_back(static_cast<float>(step->loss));
  }
  const SafetensorsFile expected =
      *SafetensorsFile::Open(Golden(absl::StrCat("recipes/", GetParam(), ".safetensors")));
  ExpectNear(losses, expected, "losses");
  for (const ParameterLayout::Entry& entry : store.layout().entries) {
    ExpectNear({store.data() + entry.begin, store.data() + entry.end}, expected, entry.name);
    const ParameterStore* const average = (*session)->average();
    if (average == nullptr) continue;
    ExpectNear({average->data() + entry.begin, average->data() + entry.end}, expected,
               absl::StrCat("average.", entry.name));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenRecipeTest, ::testing::ValuesIn(Cases()), TestName);

}  // namespace
}  // namespace plumb
