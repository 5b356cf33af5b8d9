// SPDX-License-Identifier: Apache-2.0
// Tests of the probes of a run, through the public headers: the file, the report, and resuming.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/train/metrics.h"
#include "tests/app/test_run.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ProbeRunTest : public ::testing::Test {
 protected:
  TrainRequest Probed(int64_t every, const std::vector<std::string>& points = {}) const {
    TrainRequest request = test_.Request(test_.out());
    request.probe.every = every;
    request.probe.points = points;
    return request;
  }
  std::string Probes() const {
    const auto content = ReadFile(test_.out() + "/probes.jsonl");
    return content.ok() ? *content : "no file";
  }
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(Probes());
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return lines;
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const nlohmann::json& line : Lines()) steps.push_back(line["step"]);
    return steps;
  }

  const TestRun test_;
};

using StepNumbers = std::vector<int64_t>;

TEST_F(ProbeRunTest, StepOneAndEveryMultipleAreWritten) {
  const auto run = test_.Open(Probed(3));
  EXPECT_EQ(run->info().probe_every, 3);
  TestRun::Steps(run.get(), 8);
  EXPECT_EQ(Steps(), (StepNumbers{1, 3, 6}));
  const nlohmann::json line = Lines()[1];
  EXPECT_TRUE(line["activations"].contains("layers.1.attention.residual"));
  EXPECT_TRUE(line["activations"].contains("layers.1.mlp.norm.out"));
  EXPECT_TRUE(line["gradients"].contains("layers.0.residual"));
  double square = 0;
  for (const auto& parameter : line["parameters"]) {
    square += std::pow(parameter["grad_norm"].get<double>(), 2);
  }
  const double norm = ReadMetrics(test_.out() + "/metrics.csv")->at(2).gradient_norm;
  EXPECT_NEAR(std::sqrt(square), norm, 1e-5 * norm);
}

TEST_F(ProbeRunTest, StepReportEqualsTheFile) {
  const auto run = test_.Open(Probed(2, {"logits", "param.head.weight"}));
  for (int step = 1; step <= 4; ++step) {
    const auto report = run->Step();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->probe != nullptr, step != 3) << step;
    if (report->probe == nullptr) continue;
    EXPECT_EQ(report->probe->step, step);
    ASSERT_EQ(report->probe->activations.size(), 1u);
    EXPECT_TRUE(report->probe->gradients.empty());
    const nlohmann::json line = Lines().back();
    const ProbedTensor& logits = report->probe->activations[0];
    EXPECT_EQ(logits.name, "logits");
    EXPECT_GT(logits.figures.elements, 0);
    EXPECT_EQ(line["activations"]["logits"]["rms"].get<float>(),
              static_cast<float>(logits.figures.rms));
    EXPECT_EQ(line["parameters"]["head.weight"]["grad_max"].get<float>(),
              static_cast<float>(report->probe->parameters.at(0).gradient.max));
  }
}

TEST_F(ProbeRunTest, ARunWithoutADirectoryIsProbedToo) {
  TrainRequest request = Probed(1);
  request.out = "";
  const auto run = test_.Open(request);
  const auto report = run->Step();
  ASSERT_NE(report->probe, nullptr);
  EXPECT_GT(report->probe->activations.size(), 5u);
}

TEST_F(ProbeRunTest, AResumedRunKeepsItsProbesToTheSameBytes) {
  TrainRequest request = Probed(2, {"*.residual", "grad.*.residual", "updates", "spectral"});
  request.train_overrides = {{"checkpoint_interval", "3"}};
  TestRun::Steps(test_.Open(request).get(), 8);
  const std::string whole = Probes();
  EXPECT_EQ(Steps(), (StepNumbers{1, 2, 4, 6, 8}));

  const TestRun other;
  TrainRequest again = other.Request(other.out());
  again.probe = request.probe;
  again.train_overrides = request.train_overrides;
  // The run was killed after step 5, in the middle of a line. The newest checkpoint is of step 3.
  TestRun::Steps(other.Open(again).get(), 5);
  const std::string path = other.out() + "/probes.jsonl";
  other.dir().Write("run/probes.jsonl", *ReadFile(path) + "{\"step\":6,\"activ");
  const auto resumed = other.Open(other.Resume());
  ASSERT_NE(resumed, nullptr);
  EXPECT_EQ(resumed->step(), 3);
  EXPECT_EQ(resumed->info().probe_every, 2);
  TestRun::Steps(resumed.get(), 8);
  EXPECT_EQ(*ReadFile(path), whole);
}

TEST_F(ProbeRunTest, ResumingCanChangeOrEndProbing) {
  EXPECT_TRUE(test_.Open(Probed(1))->SaveCheckpoint().ok());
  {
    TrainRequest request = test_.Resume();
    request.probe.every = 4;
    request.train_overrides = {{"checkpoint_interval", "2"}};
    TestRun::Steps(test_.Open(request).get(), 4);
  }
  EXPECT_EQ(test_.Open(test_.Resume())->info().probe_every, 4);
  EXPECT_EQ(Steps(), (StepNumbers{1, 4}));
  {
    TrainRequest request = test_.Resume();
    request.probe.every = -1;
    TestRun::Steps(test_.Open(request).get(), 4);
  }
  EXPECT_EQ(test_.Open(test_.Resume())->info().probe_every, 0);
  EXPECT_EQ(Steps(), (StepNumbers{1, 4}));
}

TEST_F(ProbeRunTest, DamagedSettingsAreNamed) {
  TestRun::Steps(test_.Open(Probed(2)).get(), 8);
  const std::string path = test_.out() + "/run.json";
  const nlohmann::json good = nlohmann::json::parse(*ReadFile(path));
  EXPECT_EQ(good["probe"]["every"], 2);
  for (const char* probe : {"1", "{}", R"({"every":0,"points":[]})", R"({"every":"2","points":[]})",
                            R"({"every":2,"points":[1]})"}) {
    nlohmann::json bad = good;
    bad["probe"] = nlohmann::json::parse(probe);
    test_.dir().Write("run/run.json", bad.dump());
    const absl::Status status = test_.OpenError(test_.Resume());
    EXPECT_TRUE(absl::IsDataLoss(status)) << probe << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("run.json: \"probe\" must be"));
  }
}

TEST_F(ProbeRunTest, DivergedStepWritesOneLine) {
  TrainRequest request = Probed(1000);
  request.train_overrides = {{"learning_rate", "1e30"}, {"warmup_steps", "0"}};
  const auto run = test_.Open(request);
  absl::Status status;
  while (status.ok() && !run->done()) status = run->Step().status();
  ASSERT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_TRUE(absl::IsAborted(run->Step().status()));
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_FALSE(lines[0].contains("diverged"));
  EXPECT_EQ(lines[1]["diverged"], true);
  EXPECT_EQ(lines[1]["step"], run->step() + 1);
  int64_t nonfinite = 0;
  for (const auto& tensor : lines[1]["activations"]) nonfinite += tensor["nonfinite"].get<int>();
  for (const auto& tensor : lines[1]["parameters"]) {
    nonfinite += tensor["grad_nonfinite"].get<int>();
  }
  EXPECT_GT(nonfinite, 0);
}

TEST_F(ProbeRunTest, ProbesAModelWithoutTraining) {
  TinyModel text;
  api::Model model = *TryModel(test_.runtime(), text.Text());
  const auto points = *ProbePoints(model);
  const auto defaults = *DefaultProbePoints(model);
  EXPECT_THAT(points, AllOf(Contains("layers.0.attention.q"), Contains("grad.logits")));
  EXPECT_LT(defaults.size(), points.size());
  for (const std::string& name : defaults) EXPECT_THAT(points, Contains(name));
  EXPECT_TRUE(absl::IsFailedPrecondition(ProbeTokens(&model, {{{1, 2, 3}}}).status()))
      << "no weights yet";
  ASSERT_TRUE(model.Init(1).ok());
  const auto figures = ProbeTokens(&model, {{{1, 2, 3}, {4, 3, 2}}});
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(figures->activations.size() + figures->gradients.size() + figures->parameters.size(),
            defaults.size());
  EXPECT_EQ(figures->activations[0].name, "embedding.residual");
  EXPECT_EQ(figures->activations[0].figures.elements, 2 * 3 * 8);
  const ModelOutputs outputs = *RunTokens(&model, {{{1, 2, 3}, {4, 3, 2}}});
  for (size_t i = 0; i < outputs.gradients.size(); ++i) {
    const ProbedParameter& parameter = figures->parameters[i];
    EXPECT_EQ(parameter.name, outputs.gradients[i].name);
    const double elements = static_cast<double>(parameter.gradient.elements);
    EXPECT_NEAR(parameter.gradient.rms * std::sqrt(elements), outputs.gradients[i].l2, 1e-9);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeTokens(&model, {{{1, 2, 3}}}, {"nothing"}).status()));
}

}  // namespace
}  // namespace plumb
