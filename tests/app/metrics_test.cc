// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/train/loss_summary.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

StepMetrics Metrics(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 3.25;
  metrics.learning_rate = 0.01 * (1 - static_cast<double>(step) / 1000);
  metrics.gradient_norm = 1.0F / 3;
  metrics.tokens = 7;
  metrics.seconds = 1e-9;
  return metrics;
}

class MetricsTest : public ::testing::Test {
 protected:
  void WriteSteps(int64_t begin, int64_t end) {
    absl::StatusOr<MetricsWriter> writer = MetricsWriter::Open(path_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int64_t step = begin; step < end; ++step) {
      ASSERT_TRUE(writer->Append(Metrics(step)).ok());
    }
    ASSERT_TRUE(writer->Sync().ok());
  }

  ScratchDir dir_;
  std::string path_ = dir_.File("metrics.csv");
};

TEST_F(MetricsTest, LineFormatIsStable) {
  absl::StatusOr<MetricsWriter> writer = MetricsWriter::Open(path_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(Metrics(0)).ok());
  StepMetrics metrics = Metrics(1);
  metrics.loss = std::numeric_limits<float>::quiet_NaN();
  metrics.gradient_norm = std::numeric_limits<float>::infinity();
  metrics.val_loss = 2.5;
  MetricsWriter moved = std::move(*writer);
  ASSERT_TRUE(moved.Append(metrics).ok());
  // The file is still open: every row is written as soon as it is appended.
  EXPECT_EQ(*ReadFile(path_),
            "step,loss,lr,grad_norm,tokens,nanoseconds,val_loss\n"
            "0,3.25,0.01,0.33333334,7,1,\n"
            "1,nan,0.00999,inf,7,1,2.5\n");
}

TEST_F(MetricsTest, NumbersRoundTrip) {
  absl::StatusOr<MetricsWriter> writer = MetricsWriter::Open(path_);
  ASSERT_TRUE(writer.ok());
  const std::vector<double> values = {0.1f, 1.0 / 3, 5e-324, 3.4e38, -0.0, 1e22};
  for (double value : values) {
    StepMetrics metrics = Metrics(std::numeric_limits<int64_t>::max());
    metrics.loss = static_cast<float>(value);
    metrics.seconds = 123456.789012345;
    metrics.val_loss = value;
    ASSERT_TRUE(writer->Append(metrics).ok());
  }
  const absl::StatusOr<std::vector<StepMetrics>> read = ReadMetrics(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ((*read)[i].loss, static_cast<float>(values[i]));
    EXPECT_EQ((*read)[i].seconds, 123456.789012345);
    EXPECT_EQ(*(*read)[i].val_loss, values[i]);
    EXPECT_EQ((*read)[i].step, std::numeric_limits<int64_t>::max());
  }
}

TEST_F(MetricsTest, EmptyCellIsNoValidationLoss) {
  WriteSteps(1, 2);
  ScratchDir::Overwrite(path_, *ReadFile(path_) + "2,nan,0,1,1,0,2.5\n");
  const absl::StatusOr<std::vector<StepMetrics>> read = ReadMetrics(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->at(0).val_loss.has_value());
  EXPECT_TRUE(std::isnan(read->at(1).loss));
  EXPECT_EQ(read->at(1).val_loss, 2.5);
}

TEST_F(MetricsTest, EarlierFormatIsRefused) {
  dir_.Write("metrics.jsonl", "{\"step\":1,\"loss\":3.5}\n");
  for (const absl::Status& status :
       {ReadMetrics(path_).status(), TruncateMetrics(path_, 1).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("was written by an earlier plumb"));
  }
}

TEST_F(MetricsTest, LostHeaderIsWrittenAgain) {
  WriteSteps(0, 3);
  const std::string whole = *ReadFile(path_);
  const size_t header = whole.find('\n') + 1;
  ScratchDir::Overwrite(path_, "damage\n" + whole.substr(header));
  EXPECT_FALSE(ReadMetrics(path_).ok());
  EXPECT_THAT(*TruncateMetrics(path_, 9), HasSubstr("metrics.csv:1: "));
  EXPECT_EQ(*ReadFile(path_), whole);
  // A process was killed while it wrote the header.
  ScratchDir::Overwrite(path_, whole.substr(0, header / 2));
  EXPECT_EQ(*TruncateMetrics(path_, 9), "");
  WriteSteps(0, 3);
  EXPECT_EQ(*ReadFile(path_), whole);
}

TEST_F(MetricsTest, TruncatedFileContinuesIdentically) {
  WriteSteps(0, 20);
  const std::string unbroken = *ReadFile(path_);
  ASSERT_TRUE(TruncateMetrics(path_, 9).ok());
  EXPECT_EQ(ReadMetrics(path_)->size(), 10u);
  WriteSteps(10, 20);
  EXPECT_EQ(*ReadFile(path_), unbroken);
}

TEST_F(MetricsTest, ATornLastLineIsDropped) {
  WriteSteps(0, 3);
  const std::string whole = *ReadFile(path_);
  const size_t two_lines = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t length = two_lines + 1; length < whole.size() - 1; ++length) {
    ScratchDir::Overwrite(path_, whole.substr(0, length));
    EXPECT_EQ(MetricsWriter::Open(path_).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReadMetrics(path_)->size(), 2u);
    ASSERT_TRUE(TruncateMetrics(path_, 100).ok());
    ASSERT_EQ(*ReadFile(path_), whole.substr(0, two_lines));
  }
  // Only the newline was lost, so every record is kept.
  ScratchDir::Overwrite(path_, whole.substr(0, whole.size() - 1));
  ASSERT_TRUE(TruncateMetrics(path_, 100).ok());
  EXPECT_EQ(*ReadFile(path_), whole);
  // The disk had allocated the block but had not written it.
  ScratchDir::Overwrite(path_, whole + std::string(100, '\0'));
  ASSERT_TRUE(TruncateMetrics(path_, 100).ok());
  EXPECT_EQ(*ReadFile(path_), whole);
}

TEST_F(MetricsTest, DamagedFileIsSetAsideAndSalvaged) {
  WriteSteps(0, 2);
  const std::string whole = *ReadFile(path_), rows = whole.substr(whole.find('\n') + 1);
  for (absl::string_view bad :
       {"", "1", "1,2,3,4,5,6", "1,,3,4,5,6,", "1.5,2,3,4,5,6,", "1,2,3,4,5,6,7,"}) {
    const std::string content = absl::StrCat(whole, bad, "\n", rows);
    ScratchDir::Overwrite(path_, content);
    EXPECT_FALSE(ReadMetrics(path_).ok());
    const absl::StatusOr<std::string> warning = TruncateMetrics(path_, 0);
    ASSERT_TRUE(warning.ok()) << warning.status();
    EXPECT_THAT(*warning, AllOf(HasSubstr("metrics.csv:4: "), HasSubstr("metrics.csv.damaged")));
    const auto kept = ReadMetrics(path_);
    ASSERT_TRUE(kept.ok()) << bad << kept.status();
    for (const StepMetrics& line : *kept) EXPECT_EQ(line.step, 0);
    EXPECT_EQ(kept->size(), 2u) << "the line before the damage, and the one after it";
    EXPECT_EQ(*TruncateMetrics(path_, 0), "") << "mended";
  }
  // Each damaged tail is saved in a file of its own and overwrites no other.
  EXPECT_TRUE(FileExists(path_ + ".damaged"));
  EXPECT_TRUE(FileExists(path_ + ".damaged-6"));
}

TEST_F(MetricsTest, WithoutTheFileThereIsNothingToTruncate) {
  EXPECT_TRUE(TruncateMetrics(path_, 5).ok());
  EXPECT_FALSE(FileExists(path_));
  EXPECT_EQ(ReadMetrics(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MetricsWriter::Open(dir_.path()).ok());
}

// Returns the summary of losses from step 1 on.
LossSummary SummarizeLosses(const std::vector<double>& losses) {
  LossSummary summary;
  int64_t step = 0;
  for (const double loss : losses) summary.Add(++step, loss, std::nullopt);
  return summary;
}

TEST(LossSummaryTest, FiguresCoverTheirSteps) {
  std::vector<double> losses;
  for (int step = 1; step <= 200; ++step) losses.push_back(step);
  losses[24] = 1000;   // step 25, after the first 20
  losses[150] = 0.25;  // step 151
  const LossSummary summary = SummarizeLosses(losses);
  EXPECT_DOUBLE_EQ(*summary.MeanOfFirst50(), (50 * 51 / 2 - 25 + 1000) / 50.0);
  EXPECT_DOUBLE_EQ(*summary.MeanOfLast100(), (100 * (101 + 200) / 2.0 - 151 + 0.25) / 100);
  EXPECT_EQ(summary.MaxOfFirst20(), 20);
  EXPECT_EQ(summary.Min(), 0.25);
}

TEST(LossSummaryTest, ShortTrainingHasFigures) {
  const LossSummary summary = SummarizeLosses({3, 1, 2});
  EXPECT_EQ(summary.MeanOfFirst50(), 2);
  EXPECT_EQ(summary.MeanOfLast100(), 2);
  EXPECT_EQ(summary.MaxOfFirst20(), 3);
  EXPECT_EQ(SummarizeLosses({}).MeanOfLast100(), std::nullopt);
}

}  // namespace
}  // namespace plumb
