// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"

#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kStudy[] =
    "# The study\nmodel: \"a.pbtxt\"\ndata: \"names.txt\"\nseed: 1\nseed: 2\nsamples: 8\n"
    "# group a: model 1, recipe 2, data 3\n";

TEST(StudyDirectoryTest, AStudyMayComeBackOrGrow) {
  const ScratchDir dir;
  ASSERT_TRUE(ClaimDirectory(dir.File("."), kStudy).ok());
  EXPECT_TRUE(ClaimDirectory(dir.File("."), kStudy).ok());
  const std::string grown = absl::StrReplaceAll(
      kStudy, {{"seed: 2\n", "seed: 2\nseed: 3\n"},
               {"model: \"a.pbtxt\"\n", "model: \"a.pbtxt\"\nmodel: \"b.pbtxt\"\n"},
               {"data 3\n", "data 3\n# group b: model 4, recipe 2, data 3\n"}});
  EXPECT_TRUE(ClaimDirectory(dir.File("."), grown).ok());
  EXPECT_EQ(*ReadFile(dir.File("study.pbtxt"), 10000), grown);
  // A model that is gone could come back with another recipe.
  const absl::Status shrunk = ClaimDirectory(dir.File("."), kStudy);
  EXPECT_TRUE(absl::IsInvalidArgument(shrunk));
  EXPECT_THAT(std::string(shrunk.message()), HasSubstr("- # group b"));
}

TEST(StudyDirectoryTest, AnotherStudyMayNotComeIn) {
  const ScratchDir dir;
  ASSERT_TRUE(ClaimDirectory(dir.File("."), kStudy).ok());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"recipe 2", "recipe 9"}, {"samples: 8", "samples: 4"}, {"names.txt", "other.txt"}}) {
    const absl::Status other =
        ClaimDirectory(dir.File("."), absl::StrReplaceAll(kStudy, {{from, to}}));
    EXPECT_TRUE(absl::IsInvalidArgument(other)) << to;
    EXPECT_THAT(std::string(other.message()),
                AllOf(HasSubstr(from), HasSubstr(to), Not(HasSubstr("seed"))));
  }
  EXPECT_EQ(*ReadFile(dir.File("study.pbtxt"), 10000), kStudy);
}

TEST(StudyDirectoryTest, RunsOfNobodyAreNotTakenOver) {
  const ScratchDir dir;
  std::filesystem::create_directory(dir.File("runs"));
  EXPECT_TRUE(absl::IsInvalidArgument(ClaimDirectory(dir.File("."), "")));
}

TEST(StudyDirectoryTest, FilesOfSomebodyElseAreNotOverwritten) {
  const ScratchDir dir;
  for (const char* name : {"report.html", "table.md", "metrics.jsonl"}) {
    const std::string file = dir.Write(name, "mine");
    const absl::Status status = ClaimDirectory(dir.File("."), "seed: 1\n");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    std::filesystem::remove(file);
  }
  dir.Write("notes.txt", "mine");
  EXPECT_TRUE(ClaimDirectory(dir.File("."), "seed: 1\n").ok());
}

TEST(StudyDirectoryTest, OneStudyAtATime) {
  const ScratchDir dir;
  {
    const auto lock = StudyLock::Acquire(dir.File("study"));
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(absl::IsAlreadyExists(StudyLock::Acquire(dir.File("study")).status()));
    EXPECT_TRUE(std::filesystem::is_empty(dir.File("study"))) << "no lock file to delete";
  }
  EXPECT_TRUE(StudyLock::Acquire(dir.File("study")).ok());
}

}  // namespace
}  // namespace plumb
