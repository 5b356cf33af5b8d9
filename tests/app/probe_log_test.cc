// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/probe_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

TensorFigures Stats(const std::vector<float>& values) {
  TensorFigures figures;
  double sum = 0, squares = 0, count = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++figures.nonfinite;
      continue;
    }
    const auto x = static_cast<double>(value);
    figures.max = std::max(figures.max, std::abs(x));
    sum += x;
    squares += x * x;
    ++count;
  }
  figures.elements = static_cast<int64_t>(values.size());
  figures.norm = std::sqrt(squares);
  figures.rms = std::sqrt(squares / std::max(1.0, count));
  figures.mean = sum / std::max(1.0, count);
  return figures;
}

ProbeFigures Result(int64_t step) {
  ProbeFigures result;
  result.step = step;
  result.activations = {{"layers.0.residual", Stats({3, -4})}, {"logits", Stats({0.1f})}};
  result.gradients = {{"logits", Stats({1e-8f, std::nanf("")})}};
  result.parameters = {{"head.weight", Stats({1, 1}), Stats({3, -4})}};
  return result;
}

class ProbeLogTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File("probes.jsonl"); }
  std::string Content() const { return *ReadFile(path()); }
  void Append(const ProbeFigures& result) const {
    ASSERT_TRUE(ProbeWriter::Open(path())->Append(result).ok());
  }

  ScratchDir dir_;
};

TEST_F(ProbeLogTest, ALineHoldsTheFigures) {
  Append(Result(7));
  EXPECT_EQ(Content(),
            R"({"step":7,"activations":{"layers.0.residual":{"rms":3.535534,"max":4,"mean":-0.5,)"
            R"("nonfinite":0},"logits":{"rms":0.1,"max":0.1,"mean":0.1,"nonfinite":0}},)"
            R"("gradients":{"logits":{"rms":1e-08,"max":1e-08,"mean":1e-08,"nonfinite":1}},)"
            R"("parameters":{"head.weight":{"rms":1,"max":1,"grad_norm":5,"grad_rms":3.535534,)"
            R"("grad_max":4,"grad_mean":-0.5,"grad_nonfinite":0}}})"
            "\n");
}

TEST_F(ProbeLogTest, DivergedStepIsMarked) {
  ProbeFigures result = Result(8);
  result.diverged = true;
  Append(result);
  EXPECT_THAT(Content(), ::testing::StartsWith(R"({"step":8,"diverged":true,"activations":{)"));
}

TEST_F(ProbeLogTest, LinesAreAlwaysJson) {
  ProbeFigures result;
  result.activations = {{"a \"quoted\" name", Stats({})}};
  result.parameters = {
      {"p", Stats({}), Stats(std::vector<float>(100, std::numeric_limits<float>::max()))}};
  Append(result);
  const auto json = nlohmann::json::parse(Content(), nullptr, false);
  ASSERT_TRUE(json.is_object()) << Content();
  EXPECT_EQ(json["activations"]["a \"quoted\" name"]["rms"], 0);
  const double max = static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_NEAR(json["parameters"]["p"]["grad_norm"].get<double>() / (10 * max), 1, 1e-9);
  EXPECT_EQ(json["parameters"]["p"]["grad_max"].get<float>(), std::numeric_limits<float>::max());
}

TEST_F(ProbeLogTest, StepsWithoutPointsHaveALine) {
  Append(ProbeFigures());
  EXPECT_EQ(Content(), "{\"step\":0,\"activations\":{},\"gradients\":{},\"parameters\":{}}\n");
}

TEST_F(ProbeLogTest, TruncatingKeepsTheBytesUpToAStep) {
  EXPECT_TRUE(TruncateProbes(path(), 3).ok());
  EXPECT_FALSE(FileExists(path()));
  for (const int64_t step : {1, 2, 4}) Append(Result(step));
  const std::string all = Content();
  ASSERT_TRUE(TruncateProbes(path(), 4).ok());
  EXPECT_EQ(Content(), all);
  ASSERT_TRUE(TruncateProbes(path(), 3).ok());
  EXPECT_EQ(Content(), all.substr(0, all.find("{\"step\":4")));
}

TEST_F(ProbeLogTest, ALastLineThatWasCutShortIsDropped) {
  Append(Result(1));
  const std::string whole = Content();
  Append(Result(2));
  for (const size_t cut : {whole.size() + 1, Content().size() - 2}) {
    dir_.Write("probes.jsonl", Content().substr(0, cut));
    EXPECT_THAT(std::string(ProbeWriter::Open(path()).status().message()),
                HasSubstr("ends in the middle of a line"));
    ASSERT_TRUE(TruncateProbes(path(), 100).ok());
    EXPECT_EQ(Content(), whole);
    Append(Result(2));
  }
}

TEST_F(ProbeLogTest, InvalidLinesAreNamedAndSetAside) {
  for (const char* line : {"nonsense", "{}", "{\"step\":\"1\"}"}) {
    dir_.Write("probes.jsonl", absl::StrCat("{\"step\":1}\n", line, "\n{\"step\":3}\n"));
    const absl::StatusOr<std::string> warning = TruncateProbes(path(), 100);
    ASSERT_TRUE(warning.ok()) << warning.status();
    EXPECT_THAT(*warning, HasSubstr("probes.jsonl:2: ")) << line;
    EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":3}\n");
  }
}

}  // namespace
}  // namespace plumb
