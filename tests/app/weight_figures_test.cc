// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/weight_figures.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/formats/safetensors.h"
#include "tests/app/test_run.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

// Returns the diagonal matrix [rows, columns] between two reflections, so that its singular values
// are those on the diagonal.
std::vector<float> MakeMatrix(const std::vector<double>& diagonal, size_t rows, size_t columns) {
  const auto reflection = [](size_t n, size_t r, size_t c) {  // I - 2 v v^T / |v|^2, v = 1, 2, ...
    double square = 0;
    for (size_t i = 1; i <= n; ++i) square += static_cast<double>(i * i);
    return (r == c ? 1.0 : 0.0) - 2 * static_cast<double>((r + 1) * (c + 1)) / square;
  };
  std::vector<float> matrix;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (size_t i = 0; i < diagonal.size(); ++i) {
        sum += reflection(rows, r, i) * diagonal[i] * reflection(columns, i, c);
      }
      matrix.push_back(static_cast<float>(sum));
    }
  }
  return matrix;
}

TEST(SpectralNormTest, IsTheLargestSingularValue) {
  EXPECT_NEAR(SpectralNorm(MakeMatrix({3, -5, 4.9}, 4, 7).data(), 4, 7), 5, 5e-4);
  EXPECT_NEAR(SpectralNorm(MakeMatrix({0.1, 0.02}, 60, 33).data(), 60, 33), 0.1, 1e-5);
  EXPECT_NEAR(SpectralNorm(MakeMatrix({2, 2, 2}, 3, 3).data(), 3, 3), 2, 1e-5);
  const float shear[] = {1, 1, 0, 1};
  EXPECT_NEAR(SpectralNorm(shear, 2, 2), (1 + std::sqrt(5.0)) / 2, 2e-4);
  const float row[] = {3, 4};
  EXPECT_NEAR(SpectralNorm(row, 1, 2), 5, 1e-5);
  EXPECT_NEAR(SpectralNorm(row, 2, 1), 5, 1e-5);
  const float zeros[6] = {};
  EXPECT_EQ(SpectralNorm(zeros, 2, 3), 0);
}

class WeightFiguresTest : public ::testing::Test {
 protected:
  TrainRequest Probed(int64_t every, const std::vector<std::string>& points) const {
    test_.dir().Write("model.pbtxt",
                      "n_layer: 2 n_head: 2 d_model: 8 context_length: 10 "
                      "block { placement: 'layer_scale' norm: 'rms_norm' }");
    TrainRequest request = test_.Request(test_.out());
    request.probe.every = every;
    request.probe.points = points;
    return request;
  }
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(*ReadFile(test_.out() + "/probes.jsonl"));
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return lines;
  }

  const TestRun test_;
};

std::vector<float> WeightIn(const std::string& checkpoint, const std::string& name) {
  const auto file = SafetensorsFile::Open(checkpoint + "/model.safetensors");
  const TensorEntry* const entry = file->Find(name);
  std::vector<float> weight(static_cast<size_t>(entry->shape.num_elements()));
  EXPECT_TRUE(file->Read(name, F32(entry->shape), weight.data()).ok());
  return weight;
}

// The checkpoints before and after a probed step hold the weights that the figures are of.
TEST_F(WeightFiguresTest, CompareWeightsBeforeAndAfterTheStep) {
  for (const char* dtype : {"F32", "BF16"}) {
    TrainRequest request = Probed(4, {"default", "updates", "spectral", "gates"});
    request.out = test_.dir().File(dtype);
    request.train_overrides = {{"dtype", dtype}};
    const auto run = test_.Open(request);
    TestRun::Steps(run.get(), 3);
    const std::string before = *run->SaveCheckpoint();
    const auto report = run->Step();
    ASSERT_NE(report->probe, nullptr);
    const std::string after = *run->SaveCheckpoint();
    size_t matrices = 0, learned = 0;
    for (const ProbedParameter& parameter : report->probe->parameters) {
      SCOPED_TRACE(parameter.name);
      const std::vector<float> w = WeightIn(before, parameter.name);
      const std::vector<float> next = WeightIn(after, parameter.name);
      double change = 0, square = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        change += std::pow(static_cast<double>(next[i]) - static_cast<double>(w[i]), 2);
        square += std::pow(static_cast<double>(w[i]), 2);
      }
      ASSERT_TRUE(parameter.update_ratio.has_value());
      EXPECT_GT(*parameter.update_rms, 0);
      EXPECT_NEAR(*parameter.update_rms, std::sqrt(change / static_cast<double>(w.size())), 1e-9);
      EXPECT_NEAR(*parameter.update_ratio, std::sqrt(change / square), 1e-5);
      if (parameter.spectral_norm.has_value()) {
        ++matrices;
        EXPECT_LE(*parameter.spectral_norm, std::sqrt(square) * (1 + 1e-5));
        EXPECT_GE(*parameter.spectral_norm, std::sqrt(square / 8));  // of at most 8 singular values
      }
      if (parameter.learned.has_value()) {
        ++learned;
        EXPECT_THAT(parameter.name, HasSubstr("gamma"));
        EXPECT_EQ(parameter.learned->min,
                  static_cast<double>(*std::min_element(w.begin(), w.end())));
        EXPECT_EQ(parameter.learned->max,
                  static_cast<double>(*std::max_element(w.begin(), w.end())));
        EXPECT_NEAR(parameter.learned->mean, parameter.value.mean, 1e-6);
      }
    }
    EXPECT_EQ(matrices, 2 * 6 + 3u);  // q, k, v, o, up, down; two embeddings and the head
    EXPECT_EQ(learned, 4u);
  }
}

TEST_F(WeightFiguresTest, AreWrittenOnRequestOnly) {
  TestRun::Steps(test_.Open(Probed(1, {"updates", "gates", "attention", "sublayers"})).get(), 2);
  const nlohmann::json line = Lines().at(1);
  EXPECT_TRUE(line["activations"].contains("layers.1.attention.entropy"));
  EXPECT_TRUE(line["activations"].contains("layers.1.attention.max_logit"));
  EXPECT_TRUE(line["activations"].contains("layers.1.attention.o"));
  EXPECT_TRUE(line["activations"].contains("layers.1.mlp.down"));
  EXPECT_FALSE(line["activations"].contains("logits")) << "default is not one of the points";
  const nlohmann::json& parameters = line["parameters"];
  EXPECT_GT(parameters["head.weight"]["update_ratio"], 0);
  EXPECT_FALSE(parameters["head.weight"].contains("spectral_norm"));
  EXPECT_FALSE(parameters["head.weight"].contains("value_mean"));
  EXPECT_NEAR(parameters["layers.1.mlp.gamma"]["value_mean"], 0.1, 0.05);
}

TEST_F(WeightFiguresTest, DivergedStepHasNone) {
  TrainRequest request = Probed(1, {"updates", "spectral", "gates"});
  request.train_overrides = {{"learning_rate", "1e30"}, {"warmup_steps", "0"}};
  const auto run = test_.Open(request);
  absl::Status status;
  while (status.ok() && !run->done()) status = run->Step().status();
  ASSERT_TRUE(absl::IsAborted(status)) << status;
  const std::vector<nlohmann::json> lines = Lines();
  EXPECT_TRUE(lines.front()["parameters"]["head.weight"].contains("update_ratio"));
  EXPECT_EQ(lines.back()["diverged"], true);
  for (const char* figure : {"update_rms", "update_ratio", "spectral_norm", "value_mean"}) {
    for (const auto& parameter : lines.back()["parameters"]) {
      EXPECT_FALSE(parameter.contains(figure));
    }
  }
}

}  // namespace
}  // namespace plumb
