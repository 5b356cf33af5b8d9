// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/training_preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

// Each step has one name, in the order of the file. The first two hundred names consist of a or b,
// the last hundred of other letters.
TEST(UnigramEntropiesTest, CoverTheLastSteps) {
  const ScratchDir dir;
  DatasetCache datasets;
  std::string names;
  for (int i = 0; i < 200; ++i) names += i % 2 == 0 ? "aa\n" : "bb\n";
  for (int i = 0; i < 100; ++i) names += "cdefg\n";
  dir.Write("names.txt", names);
  const auto entropies = [&](int64_t steps, const std::string& max_steps, const char* accumulate,
                             int64_t context) {
    return UnigramEntropies(dir.File("names.txt"), "",
                            {{"data.format", "DOCUMENTS"},
                             {"data.keep_order", "true"},
                             {"data.val_fraction", "0"},
                             {"batch_size", "1"},
                             {"gradient_accumulation_steps", accumulate},
                             {"max_steps", max_steps}},
                            context, steps, {1, 2}, &datasets)
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

// Targets are the masked tokens themselves, and special tokens are never masked.
TEST(UnigramEntropiesTest, CoverTheMaskedTokens) {
  const ScratchDir dir;
  std::string names;
  for (int i = 0; i < 200; ++i) names += "abb\n";
  dir.Write("names.txt", names);
  DatasetCache datasets;
  const auto entropy = [&](const std::string& special) {
    ScratchDir::Overwrite(dir.File("train.pbtxt"),
                          "max_steps: 20 batch_size: 1 data { format: DOCUMENTS val_fraction: 0 } "
                          "masked_tokens { share: 1 special_token: " +
                              special + " }");
    return UnigramEntropies(dir.File("names.txt"), dir.File("train.pbtxt"), {}, 8, 20, {1},
                            &datasets)
        .value()
        .front();
  };
  // The inputs are the begin token, 2, and the letters a, 0, and b, 1, of which b is there twice.
  EXPECT_THAT(entropy("2"), DoubleNear(std::log(3) - 2 * std::log(2) / 3, 1e-12));
  EXPECT_THAT(entropy("1"), DoubleNear(std::log(2), 1e-12));
}

// In random order every seed has its own batches, and a window differs from the whole file.
TEST(UnigramEntropiesTest, SeedsHaveTheirOwnBatches) {
  const ScratchDir dir;
  std::string names;
  for (char c = 'a'; c <= 'z'; ++c) names += std::string(1, c) + "\n";
  dir.Write("names.txt", names);
  DatasetCache datasets;
  const std::vector<double> found = UnigramEntropies(dir.File("names.txt"), "",
                                                     {{"data.format", "DOCUMENTS"},
                                                      {"data.val_fraction", "0"},
                                                      {"batch_size", "1"},
                                                      {"max_steps", "40"}},
                                                     4, 20, {1, 2, 3}, &datasets)
                                        .value();
  ASSERT_EQ(found.size(), 3u);
  for (const double entropy : found) {
    EXPECT_GT(entropy, 1.5);
    EXPECT_LT(entropy, 0.5 * std::log(26) + std::log(2));
  }
  EXPECT_FALSE(found[0] == found[1] && found[1] == found[2]);
}

TEST(UnigramEntropiesTest, ReportsErrorsOfDataAndRecipe) {
  DatasetCache datasets;
  EXPECT_FALSE(UnigramEntropies("no_such_file", "", {}, 8, 100, {1}, &datasets).ok());
}

TEST(DatasetCacheTest, ReadsAFileOnceForEachRecipeOfData) {
  const ScratchDir dir;
  dir.Write("names.txt", "ab\ncd\nef\n");
  const Recipe one = ReadRecipe("", {{"data.format", "DOCUMENTS"}, {"max_steps", "3"}}).value();
  const Recipe longer = ReadRecipe("", {{"data.format", "DOCUMENTS"}, {"max_steps", "9"}}).value();
  const Recipe text = ReadRecipe("", {{"data.format", "TEXT"}}).value();
  DatasetCache datasets;
  const std::string path = dir.File("names.txt");
  const auto first = datasets.Load(path, one).value();
  dir.Write("names.txt", "other\n");
  EXPECT_EQ(datasets.Load(path, longer).value(), first);
  EXPECT_NE(datasets.Load(path, text).value(), first);
  EXPECT_NE(DatasetCache().Load(path, one).value()->data_hash(), first->data_hash());
}

}  // namespace
}  // namespace plumb
