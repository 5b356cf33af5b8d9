#include "runtime/tools/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StudyTest, TheExamplesAreStudies) {
  int studies = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(PLUMB_SOURCE_DIR "/examples")) {
    if (entry.path().filename() != "study.pbtxt") continue;
    const absl::StatusOr<Study> study = Study::FromFile(entry.path().string());
    EXPECT_TRUE(study.ok()) << study.status();
    ++studies;
  }
  EXPECT_GE(studies, 1);
}

TEST(StudyTest, PathsAreThoseOfItsDirectoryAndSettingsHavePlaces) {
  const ScratchDir dir;
  dir.Write("study.pbtxt",
            "model: \"pre.pbtxt\"\ndata: \"names.txt\"\nset: \"train.max_steps=200\"\n"
            "grid { field: \"model.n_layer\" value: \"2\" value: \"4\" }\nseeds: 3\n");
  const std::string path = dir.File("study.pbtxt");
  const absl::StatusOr<Study> study = Study::FromFile(path);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_THAT(study->models, ElementsAre(dir.File("pre.pbtxt")));
  EXPECT_EQ(study->data, dir.File("names.txt"));
  ASSERT_EQ(study->settings.size(), 1u);
  EXPECT_EQ(study->settings[0].field, "train.max_steps");
  EXPECT_EQ(study->settings[0].value, "200");
  EXPECT_THAT(study->settings[0].place, StartsWith(path + ":3:"));
  ASSERT_EQ(study->grid.size(), 1u);
  EXPECT_THAT(study->grid[0].values, ElementsAre("2", "4"));
  EXPECT_THAT(study->seeds, ElementsAre(1, 2, 3));
}

TEST(StudyTest, MistakesAreToldAtOnceWithTheirPlaces) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", "seeds: 0\nsamples: -1\ngrid { field: \"model.n_layer\" }\n");
  const absl::Status status = Study::FromFile(dir.File("study.pbtxt")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("study.pbtxt:1:1: seeds must be in 1.."));
  EXPECT_THAT(std::string(status.message()), HasSubstr("study.pbtxt:2:1: samples must be"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.n_layer has no value"));
}

}  // namespace
}  // namespace plumb
