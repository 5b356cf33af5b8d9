// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kTwoSeeds[] = R"pbtxt(
  model: "a.pbtxt"
  model: "/b.pbtxt"
  data: "names.txt"
  set: "train.max_steps=30"
  grid { field: "model.n_layer" value: "4" value: "8" }
  seeds: 2
  probe_every: 10
  probe_point: "attention"
)pbtxt";

std::string Error(const StudyOptions& options) {
  const auto study = MakeStudy(options);
  EXPECT_FALSE(study.ok());
  return std::string(study.status().message());
}

TEST(StudyOptionsTest, PathsAreRelativeToTheFile) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  StudyOptions options;
  options.files = {dir.File("study.pbtxt")};
  const auto study = MakeStudy(options);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_THAT(study->models, ElementsAre(dir.File("a.pbtxt"), "/b.pbtxt"));
  EXPECT_EQ(study->data, dir.File("names.txt"));
  EXPECT_THAT(study->seeds, ElementsAre(1, 2));
  EXPECT_EQ(study->probe_every, 10);
  EXPECT_THAT(study->probe_points, ElementsAre("attention"));
  EXPECT_THAT(study->ToText(), HasSubstr("probe_point: \"attention\""));
  EXPECT_EQ(study->samples, 8);
  ASSERT_EQ(study->grid.size(), 1u);
  EXPECT_THAT(study->grid[0].values, ElementsAre("4", "8"));
  EXPECT_THAT(study->grid[0].place, HasSubstr("study.pbtxt:6:10"));
}

TEST(StudyOptionsTest, TheDTypeIsASettingOfEveryRun) {
  StudyOptions options;
  options.files = {"a.pbtxt"};
  options.dtype = "bf16";
  const auto study = MakeStudy(options);
  ASSERT_TRUE(study.ok()) << study.status();
  ASSERT_EQ(study->settings.size(), 1u);
  EXPECT_EQ(study->settings[0].field, "train.dtype");
  EXPECT_EQ(study->settings[0].value, "BF16");
}

TEST(StudyOptionsTest, TheCommandLineIsLaidOverTheFile) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  StudyOptions options;
  options.files = {dir.File("study.pbtxt")};
  options.data = "other.txt";
  options.seed_list = {"7", "3"};
  options.grid = {"train.learning_rate=1e-3, 1e-2 "};
  options.probe_every = 0;
  options.probe_points = {"default", "updates"};
  const auto study = MakeStudy(options);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->data, "other.txt");
  EXPECT_THAT(study->seeds, ElementsAre(7, 3));
  ASSERT_EQ(study->grid.size(), 2u);
  EXPECT_THAT(study->grid[1].values, ElementsAre("1e-3", "1e-2"));
  EXPECT_EQ(study->probe_every, 0);
  EXPECT_THAT(study->probe_points, ElementsAre("default", "updates"));
}

TEST(StudyOptionsTest, TheBaselineIsTheFirstModel) {
  StudyOptions options;
  options.files = {"models/a.pbtxt", "models/b.pbtxt", "models/c.pbtxt"};
  for (const char* baseline : {"c", "models/c.pbtxt"}) {
    options.baseline = baseline;
    const auto study = MakeStudy(options);
    ASSERT_TRUE(study.ok()) << study.status();
    EXPECT_THAT(study->models, ElementsAre("models/c.pbtxt", "models/a.pbtxt", "models/b.pbtxt"));
  }
  options.baseline = "d";
  EXPECT_THAT(Error(options), HasSubstr("--baseline: no model is named \"d\""));
}

TEST(StudyOptionsTest, TheTextOfAStudyIsAStudy) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  const auto study = Study::FromFile(dir.File("study.pbtxt"));
  ASSERT_TRUE(study.ok()) << study.status();
  dir.Write("again.pbtxt", study->ToText());
  const auto again = Study::FromFile(dir.File("again.pbtxt"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToText(), study->ToText());
}

TEST(StudyOptionsTest, ReportsAllErrorsOfAFileWithPlaces) {
  const ScratchDir dir;
  dir.Write("study.pbtxt",
            "model: \"a.pbtxt\"\nseeds: 0\nseed: 3\nseed: 3\nsamples: -1\ngrid { field: \"x\" }\n");
  StudyOptions options;
  options.files = {dir.File("study.pbtxt")};
  const std::string error = Error(options);
  for (const char* part :
       {"study.pbtxt:2:1: seeds must be in 1..10000", "seeds and seed",
        ":4:1: seed 3 is given twice", ":5:1: samples must be", "has no value"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
  dir.Write("study.pbtxt", "model: \"a.pbtxt\"\nseads: 3\n");
  EXPECT_THAT(Error(options), HasSubstr("did you mean \"seeds\""));
}

TEST(StudyOptionsTest, InvalidGridsAndSeedsAreErrors) {
  StudyOptions options;
  options.files = {"a.pbtxt"};
  for (const char* grid : {"model.n_layer", "=4"}) {
    options.grid = {grid};
    EXPECT_THAT(Error(options), HasSubstr("--grid ")) << grid;
  }
  options.grid = {"model.placement[p].each[0]=x = norm(x, y)"};
  EXPECT_THAT(Error(options), HasSubstr("grid { field: \"model.placement[p].each[0]\" value: "));
  options.grid.clear();
  for (const char* seed : {"x", "-1", "1e3", "010", "18446744073709551616"}) {
    options.seed_list = {seed};
    EXPECT_THAT(Error(options), HasSubstr("--seed")) << seed;
  }
  options.seed_list = {"1"};
  options.seeds = 2;
  EXPECT_THAT(Error(options), HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace plumb
