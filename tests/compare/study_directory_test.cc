// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/study_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/session/scratch_dir.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(StudyDirectoryTest, TheSameStudyMayComeBackAndAnotherMayNot) {
  const ScratchDir dir;
  ASSERT_TRUE(ClaimDirectory(dir.File("."), "seed: 1\nseed: 2\n").ok());
  EXPECT_TRUE(ClaimDirectory(dir.File("."), "seed: 1\nseed: 2\n").ok());
  const absl::Status other = ClaimDirectory(dir.File("."), "seed: 1\nseed: 3\n");
  EXPECT_TRUE(absl::IsInvalidArgument(other));
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("- seed: 2"), HasSubstr("+ seed: 3"), Not(HasSubstr("seed: 1"))));
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
}  // namespace plumb::cli
