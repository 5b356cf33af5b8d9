// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(RunResultTest, IsReadAsItWasWritten) {
  const ScratchDir dir;
  RunResult result;
  result.diverged = true;
  result.step = 7;
  result.message = "the loss is \"not\" finite\n";
  result.validation = 2.5;
  result.spikes = 3;
  result.skips = 2;
  result.step_backs = 1;
  result.samples = {{"emma", ""}, {"", "empty"}};
  ASSERT_TRUE(WriteRunResult(dir.File("."), result).ok());
  const auto result_or = ReadRunResult(dir.File("."));
  ASSERT_TRUE(result_or.ok() && result_or->has_value());
  const std::optional<RunResult>& read = *result_or;
  EXPECT_TRUE(read->diverged);
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->message, result.message);
  EXPECT_EQ(read->validation, 2.5);
  EXPECT_EQ(read->spikes, 3);
  EXPECT_EQ(read->skips, 2);
  EXPECT_EQ(read->step_backs, 1);
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

class RunRecordTest : public testing::Test {
 protected:
  void Write(int64_t step) {
    RunResult result;
    result.step = step;
    result.validation = 1.25;
    ASSERT_TRUE(WriteRunResult(dir_.File("."), result).ok());
    dir_.Write("metrics.jsonl",
               "{\"step\":1,\"loss\":3.5,\"lr\":0.1,\"tokens\":7,\"seconds\":0.5}\n"
               "{\"step\":2,\"loss\":2.5,\"lr\":0.1,\"tokens\":3,\"seconds\":0.25,"
               "\"val_loss\":9}\n");
  }
  ScratchDir dir_;
};

TEST_F(RunRecordTest, HasLossesAndTimesAndTheExactValidationAtTheEnd) {
  Write(2);
  const auto record = ReadRunRecord(dir_.File("."), "\"seed\":4");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_THAT(record->losses, ElementsAre(3.5, 2.5));
  EXPECT_THAT(record->validation, ElementsAre(Pair(2, 1.25)));
  EXPECT_DOUBLE_EQ(record->TokensPerSecond(), 10 / 0.75);
  EXPECT_EQ(record->metrics,
            "{\"seed\":4,\"step\":1,\"loss\":3.5,\"lr\":0.1,\"tokens\":7}\n"
            "{\"seed\":4,\"step\":2,\"loss\":2.5,\"lr\":0.1,\"tokens\":3,\"val_loss\":9}\n");
  EXPECT_FALSE(record->probes.has_value());
}

TEST_F(RunRecordTest, MissingStepsAreAnError) {
  Write(3);
  const auto record = ReadRunRecord(dir_.File("."), "");
  EXPECT_EQ(record.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(record.status().message()), HasSubstr("2 steps and not 3"));
}

TEST_F(RunRecordTest, AGradientNormOfALayerIsThatOfAllItsParameters) {
  Write(2);
  dir_.Write("probes.jsonl",
             "{\"step\":1,\"activations\":{\"layers.0.residual\":{\"rms\":1.5}},\"gradients\":{},"
             "\"parameters\":{\"embedding.weight\":{\"grad_norm\":9},"
             "\"layers.0.a.weight\":{\"grad_norm\":3},\"layers.0.b.weight\":{\"grad_norm\":4},"
             "\"layers.10.a.weight\":{\"grad_norm\":2}}}\n{\"step\":3");
  const auto record = ReadRunRecord(dir_.File("."), "");
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_TRUE(record->probes.has_value());
  EXPECT_THAT(record->probes->layers, ElementsAre("layers.0", "layers.10"));
  EXPECT_THAT(record->probes->steps, ElementsAre(1));
  EXPECT_THAT(record->probes->gradient_norm[0], ElementsAre(5, 2));
  EXPECT_EQ(record->probes->residual_rms[0][0], 1.5);
  EXPECT_TRUE(std::isnan(record->probes->residual_rms[0][1]));
}

TEST(DegenerateTest, SaysWhyATextIsNotWorthReading) {
  EXPECT_EQ(Degenerate("emma"), "");
  EXPECT_EQ(Degenerate("aaa"), "");
  EXPECT_EQ(Degenerate(" \n"), "empty");
  EXPECT_EQ(Degenerate("aaaaaaaaab"), "one character makes up 90 %");
  EXPECT_EQ(Degenerate("éééééééééé"), "one character makes up 100 %");
  EXPECT_EQ(Degenerate("ana\nbo\nana\nana\nana\nana\n"), "the same line 5 times");
}

}  // namespace
}  // namespace plumb
