// SPDX-License-Identifier: Apache-2.0
// Event files of a run hold the numbers of metrics.jsonl, whatever happens to the run.
#include "runtime/app/train/run_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "runtime/app/train/metrics.h"
#include "tests/app/test_run.h"
#include "tests/formats/event_records.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class RunEventsTest : public ::testing::Test {
 protected:
  TrainRequest Begin(const Overrides& overrides = {}) const {
    TrainRequest request = test_.Request(test_.out());
    request.train_overrides = overrides;
    request.tensorboard = true;
    return request;
  }
  std::vector<DecodedFile> Files() const { return DecodeEventFiles(test_.out()); }

  // Expects that the event files hold every step of metrics.jsonl once, with its numbers, and
  // nothing else.
  void ExpectToShowTheMetrics(size_t steps) const {
    const auto metrics = ReadMetrics(test_.out() + "/metrics.jsonl");
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(metrics->size(), steps);
    std::map<std::string, std::map<int64_t, float>> expected;
    for (const StepMetrics& line : *metrics) {
      expected["train/loss"][line.step] = static_cast<float>(line.loss);
      expected["train/lr"][line.step] = static_cast<float>(line.lr);
      expected["train/grad_norm"][line.step] = static_cast<float>(line.grad_norm);
      expected["train/tokens_per_second"][line.step] =
          static_cast<float>(static_cast<double>(line.tokens) / line.seconds);
      if (line.val_loss) expected["val/loss"][line.step] = static_cast<float>(*line.val_loss);
    }
    const std::vector<DecodedFile> files = Files();
    for (const auto& [tag, values] : expected) EXPECT_EQ(Shown(files, tag), values) << tag;
    for (const DecodedFile& file : files) {
      for (const DecodedEvent& event : file.events) {
        for (const auto& [tag, value] : event.scalars) EXPECT_EQ(expected.count(tag), 1u) << tag;
      }
    }
  }

  const TestRun test_;
};

TEST_F(RunEventsTest, AFinishedRunShowsItsMetrics) {
  const auto run = test_.Open(Begin({{"eval_interval", "3"}}));
  TestRun::Steps(run.get(), 8);
  // The run is still open. Saving its last checkpoint has flushed all events.
  ExpectToShowTheMetrics(8);
  EXPECT_EQ(Shown(Files(), "val/loss").size(), 3u);  // steps 3 and 6, and the last
}

TEST_F(RunEventsTest, AProbedStepShowsItsFigures) {
  TrainRequest request = Begin();
  request.probe.every = 4;
  request.probe.points = {"attention", "updates", "spectral", "grad.logits"};
  const auto run = test_.Open(request);
  TestRun::Steps(run.get(), 3);
  const auto report = run->Step();
  ASSERT_NE(report->probe, nullptr);
  const std::string tag = "activations/layers.0.attention.entropy/mean";
  const auto entropy = static_cast<float>(report->probe->activations[0].figures.mean);
  const std::string name = report->probe->parameters[0].name;
  TestRun::Steps(run.get(), 8);
  EXPECT_EQ(Shown(Files(), tag).size(), 3u);  // steps 1, 4 and 8
  EXPECT_EQ(Shown(Files(), tag)[4], entropy);
  EXPECT_EQ(Shown(Files(), "gradients/logits/rms").size(), 3u);
  for (const char* figure : {"rms", "grad_rms", "update_ratio", "spectral_norm"}) {
    EXPECT_EQ(Shown(Files(), "parameters/" + name + "/" + figure).size(), 3u) << figure;
  }
}

TEST_F(RunEventsTest, AMeasuredValidationLossIsShownAtOnce) {
  const auto run = test_.Open(Begin({{"eval_interval", "3"}}));
  TestRun::Steps(run.get(), 3);
  ExpectToShowTheMetrics(3);
}

TEST_F(RunEventsTest, TheTextsSayWhatIsTrained) {
  { const auto run = test_.Open(Begin()); }
  const std::vector<DecodedFile> files = Files();
  ASSERT_EQ(files.size(), 1u);
  std::map<std::string, std::string> texts;
  for (const DecodedEvent& event : files[0].events) {
    texts.insert(event.texts.begin(), event.texts.end());
  }
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_THAT(texts["equations"], HasSubstr("    each: x = x + f(norm(x))\n"));
  EXPECT_THAT(texts["equations"], HasSubstr("norm: rms_norm("));
  EXPECT_THAT(texts["model.pbtxt"], HasSubstr("\n    d_model: 8\n"));
  EXPECT_THAT(texts["train.pbtxt"], HasSubstr("max_steps: 8\n"));
}

TEST_F(RunEventsTest, WithoutTheOptionThereAreNone) {
  TestRun::Steps(test_.Open(test_.Request(test_.out())).get(), 8);
  EXPECT_THAT(Files(), IsEmpty());
  TestRun::Steps(test_.Open(test_.Resume()).get(), 8);
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(RunEventsTest, AResumedRunTakesStepsBackAsItsMetricsDo) {
  TestRun::Steps(test_.Open(Begin({{"checkpoint_interval", "3"}})).get(), 5);
  TrainRequest resume = test_.Resume();
  TestRun::Steps(test_.Open(resume).get(), 1);  // step 4; resuming does not need the option
  ExpectToShowTheMetrics(4);
  resume.tensorboard = true;
  TestRun::Steps(test_.Open(resume).get(), 8);
  ExpectToShowTheMetrics(8);
  const std::vector<DecodedFile> files = Files();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].events[1].step, 1);
  EXPECT_EQ(files[1].events[1].step, 4);
  EXPECT_EQ(files[2].events[1].step, 4);

  // No step is left, and nothing is written.
  { const auto run = test_.Open(resume); }
  EXPECT_EQ(Files().size(), 3u);
}

TEST_F(RunEventsTest, AKillLosesNothingThatACheckpointCountsOn) {
  TestRun::Steps(test_.Open(Begin({{"checkpoint_interval", "3"}})).get(), 3);
  // A kill leaves at worst the file as the last checkpoint synced it, and a torn record.
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(test_.out())) {
    if (absl::StrContains(entry.path().string(), "tfevents")) file = entry.path();
  }
  ScratchDir::Overwrite(file, *ReadFile(file) + std::string("\x50\0\0\0\0\0\0", 7));
  ExpectToShowTheMetrics(3);
  TestRun::Steps(test_.Open(test_.Resume()).get(), 8);
  ExpectToShowTheMetrics(8);
}

TEST_F(RunEventsTest, ARunThatBeginsToWriteThemLateShowsTheRest) {
  {
    const auto run = test_.Open(test_.Request(test_.out()));
    EXPECT_TRUE(run->SaveCheckpoint().ok());  // checkpoint of step 0
    TestRun::Steps(run.get(), 2);
  }
  test_.Open(test_.Resume());
  {
    TrainRequest resume = test_.Resume();
    resume.tensorboard = true;
    const auto run = test_.Open(resume);
    EXPECT_EQ(run->step(), 0);
    TestRun::Steps(run.get(), 8);
  }
  ExpectToShowTheMetrics(8);
}

TEST_F(RunEventsTest, ARunWithoutADirectoryHasNoPlaceForThem) {
  TrainRequest request = test_.Request("");
  request.tensorboard = true;
  const absl::Status status = test_.OpenError(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("need the directory of a run"));
}

TEST_F(RunEventsTest, TimeIsThatOfTheClock) {
  const auto recipe = ParseRecipe("", "", {});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto model = TryModel(test_.runtime(), TinyModel().Text());
  ASSERT_TRUE(model.ok()) << model.status();
  ScratchDir dir;
  double now = 1000;
  {
    auto events = RunEvents::Open(dir.path(), *model, *recipe, 1, [&now] { return now; });
    ASSERT_TRUE(events.ok()) << events.status();
    now = 1001;
    StepReport report;
    report.step = 1;
    report.loss = 3;
    ASSERT_TRUE((*events)->Add(report).ok());
  }
  const DecodedEvent last = DecodeEventFiles(dir.path())[0].events.back();
  EXPECT_EQ(last.wall_time, 1001);
  EXPECT_THAT(last.scalars, ElementsAre(Pair("train/grad_norm", 0), Pair("train/loss", 3),
                                        Pair("train/lr", 0), Pair("train/tokens_per_second", 0)));
}

}  // namespace
}  // namespace plumb
