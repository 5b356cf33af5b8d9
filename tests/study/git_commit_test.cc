// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/report.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/file.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

const std::string kCommit(40, 'a'), kOther(40, 'b');

class GitCommitTest : public ::testing::Test {
 protected:
  // Writes a file of the repository, and the directories that it is in.
  void WriteInside(const std::string& name, const std::string& text) {
    ASSERT_TRUE(MakeDirectories(ParentDirectory(dir_.File(name))).ok());
    dir_.Write(name, text);
  }
  std::string Commit() { return FindGitCommit(dir_.File("models/deep/pre.pbtxt")); }

  ScratchDir dir_;
};

TEST_F(GitCommitTest, ReadsTheBranch) {
  WriteInside(".git/HEAD", "ref: refs/heads/main\n");
  EXPECT_EQ(Commit(), "");
  WriteInside(".git/packed-refs",
              "# pack-refs\n" + kOther + " refs/heads/domain\n" + kCommit + " refs/heads/main\n");
  EXPECT_EQ(Commit(), kCommit);
  WriteInside(".git/refs/heads/main", kOther + "\n");
  EXPECT_EQ(Commit(), kOther);
}

TEST_F(GitCommitTest, ReadsDetachedHeadsAndWorktrees) {
  WriteInside(".git/HEAD", kCommit + "\n");
  EXPECT_EQ(Commit(), kCommit);
  WriteInside("models/.git", "gitdir: ../.git/worktrees/models\n");
  WriteInside(".git/worktrees/models/HEAD", "ref: refs/heads/other\n");
  WriteInside(".git/worktrees/models/commondir", "../..\n");
  WriteInside(".git/refs/heads/other", kOther + "\n");
  EXPECT_EQ(Commit(), kOther);
}

TEST_F(GitCommitTest, DamagedFilesHaveNoCommit) {
  WriteInside(".git/HEAD", "");
  EXPECT_EQ(Commit(), "");
  WriteInside(".git/HEAD", "ref: refs/heads/main\n");
  WriteInside(".git/refs/heads/main", "not a hash\n");
  EXPECT_EQ(Commit(), "");
}

}  // namespace
}  // namespace plumb
