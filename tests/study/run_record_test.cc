// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(RunResultTest, RoundTrips) {
  const ScratchDir dir;
  RunResult result;
  result.status = RunStatus::kDiverged;
  result.step = 7;
  result.message = "the loss is \"not\" finite\n";
  result.validation = 2.5;
  result.spikes = 3;
  result.skips = 2;
  result.samples = {{"emma", ""}, {"", "empty"}};
  ASSERT_TRUE(WriteRunResult(dir.File("."), result).ok());
  const auto result_or = ReadRunResult(dir.File("."));
  ASSERT_TRUE(result_or.ok() && result_or->has_value());
  const std::optional<RunResult>& read = *result_or;
  EXPECT_EQ(read->status, RunStatus::kDiverged);
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->message, result.message);
  EXPECT_EQ(read->validation, 2.5);
  EXPECT_EQ(read->spikes, 3);
  EXPECT_EQ(read->skips, 2);
  ASSERT_EQ(read->samples.size(), 2u);
  EXPECT_EQ(read->samples[1].degenerate, "empty");
}

TEST(RunResultTest, AnInvalidResultCountsAsUnfinished) {
  const ScratchDir dir;
  EXPECT_FALSE(ReadRunResult(dir.File(".")).value().has_value());
  for (const char* text :
       {"", "{", "[]", "{\"format\":\"plumb-compare-run\"}",
        "{\"format\":\"plumb-compare-run\",\"version\":1,\"status\":\"finished\",\"step\":\"x\"}",
        "{\"format\":\"plumb-compare-run\",\"version\":1,\"status\":\"odd\",\"step\":1,"
        "\"samples\":[]}",
        "{\"format\":\"plumb-compare-run\",\"version\":1,\"status\":\"finished\",\"step\":1,"
        "\"samples\":[1]}"}) {
    dir.Write("result.json", text);
    EXPECT_FALSE(ReadRunResult(dir.File(".")).value().has_value()) << text;
  }
}

constexpr char kHeader[] = "step,loss,lr,grad_norm,tokens,nanoseconds,val_loss\n";

class RunRecordTest : public testing::Test {
 protected:
  void Write(int64_t step) {
    RunResult result;
    result.step = step;
    result.validation = 1.25;
    ASSERT_TRUE(WriteRunResult(dir_.File("."), result).ok());
    dir_.Write("metrics.csv",
               absl::StrCat(kHeader, "1,3.5,0.1,1,7,500000000,\n2,2.5,0.1,1,3,250000000,9\n"));
  }
  ScratchDir dir_;
};

TEST_F(RunRecordTest, HasLossesTimesAndValidation) {
  Write(2);
  const auto record = ReadRunRecord(dir_.File("."));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_THAT(record->losses, ElementsAre(3.5, 2.5));
  EXPECT_THAT(record->validation, ElementsAre(Pair(2, 1.25)));
  EXPECT_DOUBLE_EQ(record->TokensPerSecond(), 10 / 0.75);
  EXPECT_FALSE(record->probes.has_value());
}

TEST_F(RunRecordTest, MissingStepsAreAnError) {
  Write(3);
  const auto record = ReadRunRecord(dir_.File("."));
  EXPECT_EQ(record.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(record.status().message()), HasSubstr("2 steps and not 3"));
}

TEST_F(RunRecordTest, AGapInTheMetricsIsNamed) {
  dir_.Write("train.pbtxt", "max_steps: 5\n");
  const std::string first = "1,3.5,0,0,0,0,\n", third = "4,2.5,0,0,0,0,\n";
  for (const auto& [lines, expected] : std::vector<std::pair<std::string, std::string>>{
           {first + third, "lacks steps 2 to 3"},
           {third, "lacks steps 1 to 3"},
           {first + first, "has step 1 twice"},
           {first + "2,\n" + third, "metrics.csv:3: is not a row"}}) {
    dir_.Write("metrics.csv", kHeader + lines);
    const absl::Status status = ReadRunRecord(dir_.File(".")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

TEST_F(RunRecordTest, TrainRunHasItsOutcome) {
  dir_.Write("train.pbtxt", "max_steps: 2\n");
  const std::string steps = absl::StrCat(kHeader, "1,3.5,0,0,0,0,\n2,2.5,0,0,0,0,\n");
  const std::string incidents =
      "{\"step\":1,\"batch\":1,\"kind\":\"skip\",\"message\":\"\"}\n"
      "{\"step\":1,\"batch\":2,\"kind\":\"spike\",\"message\":\"\"}\n";
  dir_.Write("incidents.jsonl", incidents);
  dir_.Write("metrics.csv", steps);
  absl::StatusOr<RunRecord> record = ReadRunRecord(dir_.File("."));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->result.status, RunStatus::kFinished);
  EXPECT_EQ(record->result.skips, 1);
  EXPECT_EQ(record->result.spikes, 1);

  const std::string validated = absl::StrCat(kHeader, "1,3.5,0,0,0,0,\n2,2.5,0,0,0,0,1.25\n");
  dir_.Write("metrics.csv", validated);
  EXPECT_EQ(ReadRunRecord(dir_.File("."))->result.validation, 1.25);
  dir_.Write("train.pbtxt", "max_steps: 2 eval_interval: 1 eval_batches: 1\n");
  EXPECT_EQ(ReadRunRecord(dir_.File("."))->result.validation, std::nullopt)
      << "is over a batch, not over the split";
  dir_.Write("train.pbtxt", "max_steps: 2\n");

  dir_.Write("metrics.csv", steps.substr(0, steps.size() - 5));  // killed while it wrote a line
  record = ReadRunRecord(dir_.File("."));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->result.status, RunStatus::kInterrupted);
  EXPECT_EQ(record->result.message, "interrupted after 1 of 2 steps");

  dir_.Write("incidents.jsonl",
             incidents + "{\"step\":2,\"batch\":3,\"kind\":\"stop\",\"message\":\"why\"}\n");
  record = ReadRunRecord(dir_.File("."));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->result.status, RunStatus::kDiverged);
  EXPECT_EQ(record->result.step, 2);
  EXPECT_EQ(record->result.message, "why");
}

TEST_F(RunRecordTest, LayerGradientNormsCoverAllParameters) {
  Write(2);
  dir_.Write("probes.jsonl",
             "{\"step\":1,\"activations\":{\"layers.0.residual\":{\"rms\":1.5}},\"gradients\":{},"
             "\"parameters\":{\"embedding.weight\":{\"grad_norm\":9},"
             "\"layers.0.a.weight\":{\"grad_norm\":3},\"layers.0.b.weight\":{\"grad_norm\":4},"
             "\"layers.10.a.weight\":{\"grad_norm\":2}}}\n{\"step\":3");
  const auto record = ReadRunRecord(dir_.File("."));
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_TRUE(record->probes.has_value());
  EXPECT_THAT(record->probes->layers, ElementsAre("layers.0", "layers.10"));
  EXPECT_THAT(record->probes->steps, ElementsAre(1));
  ASSERT_EQ(record->probes->series.size(), 2u);
  EXPECT_THAT(record->probes->Find("gradient norm")->values[0], ElementsAre(5, 2));
  const std::vector<double>& rms = record->probes->Find("residual stream RMS")->values[0];
  EXPECT_EQ(rms[0], 1.5);
  EXPECT_TRUE(std::isnan(rms[1]));
}

// Returns a line of probes.jsonl with figures of two layers.
std::string ProbeLine(int step, double a, double b) {
  const auto layer = [](int index, double x) {
    const std::string name = absl::StrCat("\"layers.", index, ".");
    return std::make_pair(
        absl::StrCat(name, "attention.entropy\":{\"rms\":9,\"max\":9,\"mean\":", x, "},", name,
                     "attention.max_logit\":{\"rms\":9,\"max\":", x, ",\"mean\":9},", name,
                     "attention.o\":{\"rms\":", x, ",\"max\":", 2 * x, "},", name,
                     "mlp.down\":{\"rms\":", 3 * x, ",\"max\":", 4 * x, "},", name,
                     "mlp.residual\":{\"rms\":9}"),
        absl::StrCat(name, "up.weight\":{\"update_ratio\":", x, ",\"spectral_norm\":", x, "},",
                     name, "down.weight\":{\"update_ratio\":", 4 * x, ",\"spectral_norm\":", x / 2,
                     "},", name, "mlp.gate\":{\"value_mean\":", -x, "}"));
  };
  const auto first = layer(0, a), second = layer(1, b);
  return absl::StrCat("{\"step\":", step, ",\"activations\":{", first.first, ",", second.first,
                      "},\"parameters\":{", first.second, ",", second.second, "}}\n");
}

TEST(RunProbesTest, EachKindOfFigureIsASeriesByLayer) {
  const std::optional<RunProbes> probes =
      ParseProbes(ProbeLine(1, 1, 2) + ProbeLine(5, 2, 4) + ProbeLine(5, 4, 8) + "{\"step\":9", 5);
  ASSERT_TRUE(probes.has_value());
  EXPECT_THAT(probes->steps, ElementsAre(1, 5));  // the repeated step is the last one
  const std::vector<std::pair<std::string, double>> factors = {
      {"attention entropy", 1},        {"largest attention logit", 1}, {"attention output RMS", 1},
      {"largest attention output", 2}, {"MLP output RMS", 3},          {"largest MLP output", 4},
      {"update-to-weight ratio", 2},   {"spectral norm", 1},           {"learned value gate", -1}};
  ASSERT_EQ(probes->series.size(), factors.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    const auto& [name, factor] = factors[i];
    const ProbeSeries& series = probes->series[i];
    EXPECT_EQ(series.name, name);
    EXPECT_THAT(series.values[0],
                ElementsAre(DoubleNear(factor, 1e-12), DoubleNear(2 * factor, 1e-12)));
    EXPECT_THAT(series.values[1],
                ElementsAre(DoubleNear(4 * factor, 1e-12), DoubleNear(8 * factor, 1e-12)));
    EXPECT_EQ(series.is_largest, name.find("largest") == 0 || name == "spectral norm");
  }
}

TEST(RunProbesTest, MeansOverRunsAreOfFactorsOrOfDifferences) {
  const RunProbes a = *ParseProbes(ProbeLine(1, 1, 2), 9);
  const RunProbes b = *ParseProbes(ProbeLine(1, 4, 8) + ProbeLine(3, 1, 1), 9);
  RunProbes early = a;  // a run that diverged has no figures of updates
  early.series.resize(1);
  EXPECT_EQ(MeanProbes({&early, &b}).series.size(), b.series.size());
  const RunProbes mean = MeanProbes({&a, &b});
  EXPECT_THAT(mean.steps, ElementsAre(1, 3));
  EXPECT_THAT(mean.Find("attention entropy")->values[0], ElementsAre(2.5, 5));
  EXPECT_THAT(mean.Find("spectral norm")->values[0],
              ElementsAre(DoubleNear(2, 1e-12), DoubleNear(4, 1e-12)));
  EXPECT_THAT(mean.Find("learned value gate")->values[1], ElementsAre(-1, -1));
}

TEST(RunProbesTest, MeansAreOfLayersWithTheSameName) {
  const auto line = [](int layer, double rms) {
    return absl::StrCat("{\"step\":1,\"activations\":{\"layers.", layer,
                        ".residual\":{\"rms\":", rms, "}}}\n");
  };
  const RunProbes late = *ParseProbes(line(10, 3), 9), early = *ParseProbes(line(9, 2), 9);
  const RunProbes mean = MeanProbes({&late, &early, &late});
  EXPECT_THAT(mean.layers, ElementsAre("layers.9", "layers.10"));
  EXPECT_THAT(mean.Find("residual stream RMS")->values[0],
              ElementsAre(DoubleNear(2, 1e-12), DoubleNear(3, 1e-12)));
}

TEST(DegenerateTest, NamesDegenerateTexts) {
  EXPECT_EQ(Degenerate("emma"), "");
  EXPECT_EQ(Degenerate("aaa"), "");
  EXPECT_EQ(Degenerate(" \n"), "empty");
  EXPECT_EQ(Degenerate("aaaaaaaaab"), "one character makes up 90 %");
  EXPECT_EQ(Degenerate("éééééééééé"), "one character makes up 100 %");
  EXPECT_EQ(Degenerate("ana\nbo\nana\nana\nana\nana\n"), "the same line 5 times");
}

}  // namespace
}  // namespace plumb
