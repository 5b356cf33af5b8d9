// SPDX-License-Identifier: Apache-2.0
// Compares plumb with tests/golden, an implementation in PyTorch that does not read formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/formats/safetensors.h"
#include "tests/app/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

std::string Golden(const std::string& name) {
  return absl::StrCat(PLUMB_SOURCE_DIR, "/tests/golden/", name);
}

// Returns the model texts by the names of their cases: those in models.txt and in the two folders.
std::map<std::string, std::string> GoldenModels() {
  std::map<std::string, std::string> models;
  for (absl::string_view text :
       absl::StrSplit(absl::StrCat("\n", *ReadFile(Golden("models.txt"))), "\n# case ")) {
    const std::pair<absl::string_view, absl::string_view> lines =
        absl::StrSplit(text, absl::MaxSplits('\n', 1));
    if (!text.empty()) models[std::string(lines.first)] = std::string(lines.second);
  }
  for (const char* folder : {"bert", "pre"}) {
    models[folder] = *ReadFile(Golden(absl::StrCat(folder, "/model.pbtxt")));
  }
  return models;
}

std::vector<std::string> GoldenCases() {
  std::vector<std::string> names;
  for (const auto& [name, model] : GoldenModels()) names.push_back(name);
  return names;
}

std::vector<float> GetTensor(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* tensor = file.Find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << file.path() << " has no " << name;
    return {};
  }
  std::vector<float> values(tensor->data.size() / sizeof(float));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

double L2(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// Reads a list of sequences, or an object of sequences, targets (null and -100 mean no target) and
// token types.
TokenBatch ReadBatch(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  if (json.is_array()) return {json.get<Tokens>()};
  TokenBatch batch = {json["sequences"].get<Tokens>(), {}, json["token_types"].get<Tokens>()};
  for (const nlohmann::json& row : json["targets"]) {
    std::vector<int32_t>& targets = batch.targets.emplace_back();
    for (const nlohmann::json& target : row) {
      targets.push_back(target.is_null() || target == -100 ? -1 : target.get<int32_t>());
    }
  }
  return batch;
}

// Sets the logits beyond the end of each sequence, which are unspecified, to 0.
void ClearPadding(const TokenBatch& batch, ModelOutputs* outputs) {
  for (size_t row = 0; row < batch.sequences.size(); ++row) {
    const auto of_row =
        outputs->logits.begin() + static_cast<int64_t>(row) * outputs->seq * outputs->vocab;
    std::fill(of_row + static_cast<int64_t>(batch.sequences[row].size()) * outputs->vocab,
              of_row + outputs->seq * outputs->vocab, 0.0f);
  }
}

// Returns the tokens of a case's file, I32 [batch, seq].
TokenBatch GetTokens(const SafetensorsFile& file) {
  TokenBatch batch;
  const TensorEntry* tokens = file.Find("tokens");
  if (tokens == nullptr) return batch;
  const size_t seq = static_cast<size_t>(tokens->shape[1]);
  for (int64_t row = 0; row < tokens->shape[0]; ++row) {
    std::vector<int32_t>& sequence = batch.sequences.emplace_back(seq);
    std::memcpy(sequence.data(), tokens->data.data() + static_cast<size_t>(row) * seq * 4, seq * 4);
  }
  return batch;
}

// Writes those tensors of a case's file that are weights, in the form in which a model loads them.
absl::Status WriteWeights(const SafetensorsFile& file, const std::string& path) {
  std::vector<TensorToWrite> weights;
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.name == "tokens" || tensor.name == "logits" || tensor.name == "loss") continue;
    if (absl::StartsWith(tensor.name, "grad.")) continue;
    weights.push_back({tensor.name, F32(tensor.shape), tensor.data.data()});
  }
  return WriteSafetensors(path, weights);
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenTest() {
    const std::string folder = Golden(GetParam());
    if (std::filesystem::exists(folder)) {
      expected_.emplace(*SafetensorsFile::Open(folder + "/expected.safetensors"));
      weights_ = folder + "/weights.safetensors";
      batch_ = ReadBatch(folder + "/tokens.json");
    } else {
      const std::string file = Golden(absl::StrCat("cases/", GetParam(), ".safetensors"));
      expected_.emplace(*SafetensorsFile::Open(file));
      weights_ = absl::StrCat(directory_.path(), "/weights.safetensors");
      PLUMB_CHECK(WriteWeights(*expected_, weights_).ok(), "weights");
      batch_ = GetTokens(*expected_);
    }
  }

  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
  const ScratchDir directory_;
  std::string weights_;
  TokenBatch batch_;
  std::optional<SafetensorsFile> expected_;
};

TEST_P(GoldenTest, MatchesLogitsLossAndGradients) {
  auto model = TryModel(runtime_.get(), GoldenModels().at(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status loaded = ToStatus(model->Load(weights_));
  ASSERT_TRUE(loaded.ok()) << loaded;
  auto outputs = RunTokens(&*model, batch_);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ClearPadding(batch_, &*outputs);

  EXPECT_LE(RelativeError(outputs->logits, GetTensor(*expected_, "logits")), 1e-5);
  const double loss = static_cast<double>(GetTensor(*expected_, "loss").at(0));
  EXPECT_NEAR(*outputs->loss, loss, 1e-5 * loss);

  // Exactly the expected gradients exist. Errors are relative to the largest element of all
  // gradients.
  std::map<std::string, std::vector<float>> gradients;
  double largest = 0, largest_l2 = 0;
  for (const TensorEntry& tensor : expected_->tensors()) {
    if (tensor.name.rfind("grad.", 0) != 0) continue;
    std::vector<float>& gradient = gradients[tensor.name.substr(5)];
    gradient = GetTensor(*expected_, tensor.name);
    for (float g : gradient) largest = std::max(largest, static_cast<double>(std::fabs(g)));
    largest_l2 = std::max(largest_l2, L2(gradient));
  }
  ASSERT_EQ(outputs->gradients.size(), gradients.size());
  ASSERT_GT(largest, 0);
  for (const auto& [name, expected_gradient] : gradients) {
    const auto found = std::find_if(outputs->gradients.begin(), outputs->gradients.end(),
                                    [&](const auto& given) { return given.name == name; });
    ASSERT_NE(found, outputs->gradients.end()) << name;
    const std::vector<float>& gradient = found->data;
    ASSERT_EQ(gradient.size(), expected_gradient.size()) << name;
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(gradient[i], expected_gradient[i], 1e-5 * largest) << name << "[" << i << "]";
    }
    const double l2 = L2(expected_gradient);
    if (l2 < 1e-3 * largest_l2) continue;  // only rounding noise
    EXPECT_NEAR(L2(gradient), l2, 1e-4 * l2) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(GoldenCases()), TestName);

TEST(GoldenCasesTest, EveryFileHasAModel) {
  for (const auto& entry : std::filesystem::directory_iterator(Golden("cases"))) {
    EXPECT_EQ(GoldenModels().count(entry.path().stem().string()), 1u) << entry.path();
  }
}

TEST(GoldenCasesTest, EveryShippedPlacementHasACase) {
  const std::vector<std::string> cases = GoldenCases();
  for (const std::string& placement : ShippedPlacements()) {
    EXPECT_TRUE(std::binary_search(cases.begin(), cases.end(), placement)) << placement;
  }
}

}  // namespace
}  // namespace plumb
