// plumb against tests/golden: an implementation in PyTorch that cannot read a formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/io/safetensors.h"
#include "runtime/tools/model.h"
#include "tests/api/test_models.h"

namespace plumb {
namespace {

std::string GoldenDirectory() { return absl::StrCat(PLUMB_SOURCE_DIR, "/tests/golden"); }

std::vector<std::string> GoldenCases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDirectory())) {
    if (std::filesystem::exists(entry.path() / "model.pbtxt")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<float> TensorOf(const SafetensorsFile& file, const std::string& name) {
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

// A list of sequences, or an object of sequences, targets, of which null and -100 are none, and
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

// Logits beyond the end of a sequence, which mean nothing, become 0.
void ClearPadding(const TokenBatch& batch, Model::Outputs* outputs) {
  for (size_t row = 0; row < batch.sequences.size(); ++row) {
    const auto of_row =
        outputs->logits.begin() + static_cast<int64_t>(row) * outputs->seq * outputs->vocab;
    std::fill(of_row + static_cast<int64_t>(batch.sequences[row].size()) * outputs->vocab,
              of_row + outputs->seq * outputs->vocab, 0.0f);
  }
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::string File(const char* name) const {
    return absl::StrCat(GoldenDirectory(), "/", GetParam(), "/", name);
  }
  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
};

TEST_P(GoldenTest, LogitsLossAndGradientsAreThoseOfThePaper) {
  const auto spec = Spec::FromFile(File("model.pbtxt"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto model = Model::Create(runtime_.get(), *spec);
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status loaded = (*model)->LoadWeights(File("weights.safetensors"));
  ASSERT_TRUE(loaded.ok()) << loaded;
  const TokenBatch batch = ReadBatch(File("tokens.json"));
  auto outputs = (*model)->Run(batch);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ClearPadding(batch, &*outputs);
  const auto expected = SafetensorsFile::Open(File("expected.safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.status();

  EXPECT_LE(RelativeError(outputs->logits, TensorOf(*expected, "logits")), 1e-5);
  const double loss = static_cast<double>(TensorOf(*expected, "loss").at(0));
  EXPECT_NEAR(*outputs->loss, loss, 1e-5 * loss);

  // Every gradient that is expected, and no other, against the largest element of the model's.
  std::map<std::string, std::vector<float>> gradients;
  double largest = 0, largest_l2 = 0;
  for (const TensorEntry& tensor : expected->tensors()) {
    if (tensor.name.rfind("grad.", 0) != 0) continue;
    std::vector<float>& gradient = gradients[tensor.name.substr(5)];
    gradient = TensorOf(*expected, tensor.name);
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
    if (l2 < 1e-3 * largest_l2) continue;  // noise around zero
    EXPECT_NEAR(L2(gradient), l2, 1e-4 * l2) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(GoldenCases()), TestName);

TEST(GoldenCasesTest, EveryShippedPlacementHasOne) {
  const std::vector<std::string> cases = GoldenCases();
  for (const std::string& placement : ShippedPlacements()) {
    EXPECT_TRUE(std::binary_search(cases.begin(), cases.end(), placement)) << placement;
  }
}

}  // namespace
}  // namespace plumb
