// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Each;
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

TEST(StudyTest, ReportsAllErrorsWithTheirPlaces) {
  const ScratchDir dir;
  dir.Write("study.pbtxt", "seeds: 0\nsamples: -1\ngrid { field: \"model.n_layer\" }\n");
  const absl::Status status = Study::FromFile(dir.File("study.pbtxt")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("study.pbtxt:1:1: seeds must be in 1.."));
  EXPECT_THAT(std::string(status.message()), HasSubstr("study.pbtxt:2:1: samples must be"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.n_layer has no value"));
}

// Each step has one name, in the order of the file. The first two hundred names consist of a or b,
// the last hundred of other letters.
TEST(UnigramEntropiesTest, AreOfTheTokensOfTheLastSteps) {
  const ScratchDir dir;
  std::string names;
  for (int i = 0; i < 200; ++i) names += i % 2 == 0 ? "aa\n" : "bb\n";
  for (int i = 0; i < 100; ++i) names += "cdefg\n";
  dir.Write("names.txt", names);
  const auto entropies = [&dir](int64_t steps, const std::string& max_steps, const char* accumulate,
                                int64_t context) {
    return UnigramEntropies(dir.File("names.txt"), "",
                            {{"data.format", "DOCUMENTS"},
                             {"data.keep_order", "true"},
                             {"data.val_fraction", "0"},
                             {"batch_size", "1"},
                             {"gradient_accumulation_steps", accumulate},
                             {"max_steps", max_steps}},
                            context, steps, {1, 2})
        .value();
  };
  // Targets are c, d, e, f, g and the end token. A context that is too short for the end drops it.
  EXPECT_THAT(entropies(100, "300", "1", 8),
              ElementsAre(DoubleEq(std::log(6)), DoubleEq(std::log(6))));
  EXPECT_THAT(entropies(50, "150", "2", 5), Each(DoubleEq(std::log(5))));
  // The probabilities are a third each: the two letters of a name weigh twice its end, and a name
  // of three targets as much as one of six.
  EXPECT_THAT(entropies(100, "200", "1", 8), Each(DoubleEq(std::log(3))));
  // Either kind of name has half of the weight: a and b have a sixth each, c to g a twelfth each,
  // and the end a sixth plus a twelfth.
  EXPECT_THAT(entropies(200, "300", "1", 8),
              Each(DoubleNear(std::log(6) / 3 + 5 * std::log(12) / 12 + std::log(4) / 4, 1e-12)));
}

// In random order every seed has its own batches, and a window differs from the whole file.
TEST(UnigramEntropiesTest, SeedsHaveTheirOwnBatches) {
  const ScratchDir dir;
  std::string names;
  for (char c = 'a'; c <= 'z'; ++c) names += std::string(1, c) + "\n";
  dir.Write("names.txt", names);
  const std::vector<double> found = UnigramEntropies(dir.File("names.txt"), "",
                                                     {{"data.format", "DOCUMENTS"},
                                                      {"data.val_fraction", "0"},
                                                      {"batch_size", "1"},
                                                      {"max_steps", "40"}},
                                                     4, 20, {1, 2, 3})
                                        .value();
  ASSERT_EQ(found.size(), 3u);
  for (const double entropy : found) {
    EXPECT_GT(entropy, 1.5);
    EXPECT_LT(entropy, 0.5 * std::log(26) + std::log(2));
  }
  EXPECT_FALSE(found[0] == found[1] && found[1] == found[2]);
}

TEST(UnigramEntropiesTest, SaysWhatIsWrongWithDataAndRecipe) {
  EXPECT_FALSE(UnigramEntropies("no_such_file", "", {}, 8, 100, {1}).ok());
}

}  // namespace
}  // namespace plumb
