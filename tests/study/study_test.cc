// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/schema/reader.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

std::string Error(const std::vector<std::string>& files,
                  const std::vector<StudyChange>& changes = {}) {
  const auto study = MakeStudy(files, changes);
  EXPECT_FALSE(study.ok());
  return std::string(study.status().message());
}

TEST(MakeStudyTest, ResolvesPathsRelativeToTheFile) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  const auto study = MakeStudy({dir.File("study.pbtxt")}, {});
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_THAT(study->fields.model(), ElementsAre(dir.File("a.pbtxt"), "/b.pbtxt"));
  EXPECT_EQ(study->fields.data(), dir.File("names.txt"));
  EXPECT_THAT(GetSeeds(study->fields), ElementsAre(1, 2));
  EXPECT_EQ(study->fields.probe_every(), 10);
  EXPECT_THAT(study->fields.probe_point(), ElementsAre("attention"));
  EXPECT_EQ(study->fields.samples(), 8);
  ASSERT_EQ(study->fields.grid_size(), 1);
  EXPECT_THAT(study->fields.grid(0).value(), ElementsAre("4", "8"));
  EXPECT_THAT(study->grid_places, ElementsAre(HasSubstr("study.pbtxt:6:10")));
}

TEST(MakeStudyTest, AddsTheDTypeAsASetting) {
  const auto study = MakeStudy({"a.pbtxt"}, {{"--dtype", "dtype", "bf16"}});
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_THAT(study->fields.set(), ElementsAre("train.dtype=BF16"));
  EXPECT_THAT(GetSeeds(study->fields), ElementsAre(1, 2, 3));
}

TEST(MakeStudyTest, AppliesChangesToTheFile) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  const auto study =
      MakeStudy({dir.File("study.pbtxt")}, {{"--data", "data", "other.txt"},
                                            {"--seed", "seed", "7"},
                                            {"--seed", "seed", "3"},
                                            {"--grid", "grid", "train.learning_rate=1e-3, 1e-2 "},
                                            {"--match", "match", "flops"},
                                            {"--probe-every", "probe_every", "0"},
                                            {"--probe-point", "probe_point", "default"},
                                            {"--probe-point", "probe_point", "updates"}});
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->fields.data(), "other.txt");
  EXPECT_THAT(GetSeeds(study->fields), ElementsAre(7, 3));
  EXPECT_FALSE(study->fields.has_seeds());
  ASSERT_EQ(study->fields.grid_size(), 2);
  EXPECT_THAT(study->fields.grid(1).value(), ElementsAre("1e-3", "1e-2"));
  EXPECT_EQ(study->fields.match(), v1::Study::FLOPS);
  EXPECT_EQ(study->fields.probe_every(), 0);
  EXPECT_THAT(study->fields.probe_point(), ElementsAre("default", "updates"));
}

TEST(MakeStudyTest, ProbesAtTheDefaultIntervalUnlessThereIsOne) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  const std::vector<StudyChange> probe = {{"--probe", "probe", "true"}};
  EXPECT_GT(MakeStudy({"a.pbtxt"}, probe)->fields.probe_every(), 10);
  EXPECT_EQ(MakeStudy({dir.File("study.pbtxt")}, probe)->fields.probe_every(), 10);
}

TEST(MakeStudyTest, MovesTheBaselineToTheFirstPlace) {
  const std::vector<std::string> files = {"models/a.pbtxt", "models/b.pbtxt", "models/c.pbtxt"};
  for (const char* baseline : {"c", "models/c.pbtxt"}) {
    const auto study = MakeStudy(files, {{"--baseline", "baseline", baseline}});
    ASSERT_TRUE(study.ok()) << study.status();
    EXPECT_THAT(study->fields.model(),
                ElementsAre("models/c.pbtxt", "models/a.pbtxt", "models/b.pbtxt"));
  }
  const auto grid = MakeStudy({"a.pbtxt"}, {{"--grid", "grid", "model.block.placement=pre,post"},
                                            {"--baseline", "baseline", "post"}});
  ASSERT_TRUE(grid.ok()) << grid.status();
  EXPECT_THAT(grid->fields.grid(0).value(), ElementsAre("post", "pre"));
  EXPECT_THAT(Error(files, {{"--baseline", "baseline", "d"}}),
              HasSubstr("--baseline: no model is named \"d\""));
}

TEST(MakeStudyTest, TakesTheMarginFromFileOrOption) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", absl::StrCat(kTwoSeeds, "margin: 0.01\n"));
  EXPECT_EQ(MakeStudy({dir.File("study.pbtxt")}, {})->fields.margin(), 0.01);
  EXPECT_EQ(
      MakeStudy({dir.File("study.pbtxt")}, {{"--margin", "margin", "0.005"}})->fields.margin(),
      0.005);
}

TEST(ReadStudyTest, PrintedTextRoundTrips) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", kTwoSeeds);
  const auto study = ReadStudy(dir.File("study.pbtxt"));
  ASSERT_TRUE(study.ok()) << study.status();
  dir.Write("again.pbtxt", textproto::PrintText(study->fields));
  const auto again = ReadStudy(dir.File("again.pbtxt"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(textproto::PrintText(again->fields), textproto::PrintText(study->fields));
}

TEST(ReadStudyTest, ReportsAllErrorsWithTheirPlaces) {
  const ScratchDir dir;
  dir.Write("study.pbtxt",
            "model: \"a.pbtxt\"\nseeds: 0\nseed: 3\nseed: 3\nsamples: -1\ngrid { field: \"x\" }\n"
            "set: \"train.max_steps\"\nset: \"train.seed=1\"\nmargin: -0.1\n");
  const std::string error = Error({dir.File("study.pbtxt")});
  for (const char* part :
       {"study.pbtxt:2:1: seeds must be in 1..10000", "seeds and seed",
        ":4:1: seed 3 is given twice", ":5:1: samples must be", ":9:1: margin must be",
        "has no value", ":6:8: grid: \"x\": a setting begins with",
        ":7:1: set: \"train.max_steps\" has no \"=\"",
        ":8:1: set: train.seed cannot be set in a study"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
  dir.Write("study.pbtxt", "model: \"a.pbtxt\"\nseads: 3\n");
  EXPECT_THAT(Error({dir.File("study.pbtxt")}), HasSubstr("did you mean \"seeds\""));
}

TEST(MakeStudyTest, RefusesInvalidGridsAndSeeds) {
  for (const char* grid : {"model.n_layer", "=4", "n_layer=4"}) {
    EXPECT_THAT(Error({"a.pbtxt"}, {{"--grid", "grid", grid}}), HasSubstr("--grid ")) << grid;
  }
  EXPECT_THAT(Error({"a.pbtxt"}, {{"--grid", "grid", "model.placement[p].each[0]=x = norm(x, y)"}}),
              HasSubstr("grid { field: \"model.placement[p].each[0]\" value: "));
  for (const char* seed : {"x", "-1", "1e3", "010", "18446744073709551616"}) {
    EXPECT_THAT(Error({"a.pbtxt"}, {{"--seed", "seed", seed}}), HasSubstr("--seed")) << seed;
  }
  EXPECT_THAT(Error({"a.pbtxt"}, {{"--seed", "seed", "1"}, {"--seeds", "seeds", "2"}}),
              HasSubstr("exclude each other"));
}

TEST(ReadStudyTest, ReadsTheExamples) {
  int studies = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(PLUMB_SOURCE_DIR "/examples")) {
    if (entry.path().filename() != "study.pbtxt") continue;
    const absl::StatusOr<Study> study = ReadStudy(entry.path().string());
    EXPECT_TRUE(study.ok()) << study.status();
    ++studies;
  }
  EXPECT_GE(studies, 1);
}

}  // namespace
}  // namespace plumb
