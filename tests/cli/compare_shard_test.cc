// SPDX-License-Identifier: Apache-2.0
// Tests of studies in shards and of their merge.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CompareShardTest : public PlumbTest {
 protected:
  Finished Compare(const std::string& out, const std::vector<std::string>& more = {},
                   int steps = 20) {
    std::vector<std::string> arguments = {"compare",
                                          "pre.pbtxt",
                                          "post.pbtxt",
                                          "--data",
                                          "names.txt",
                                          "--train",
                                          "train.pbtxt",
                                          "--set",
                                          "train.max_steps=" + std::to_string(steps),
                                          "--samples",
                                          "2",
                                          "--out",
                                          out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }

  Finished Merge(const std::string& out, const std::vector<std::string>& directories) {
    std::vector<std::string> arguments = {"compare", "--merge"};
    arguments.insert(arguments.end(), directories.begin(), directories.end());
    arguments.insert(arguments.end(), {"--out", out});
    return RunPlumb(arguments);
  }

  void MakeShards(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string shard = std::to_string(i) + "/" + std::to_string(count);
      const Finished result = Compare("part" + std::to_string(i), {"--shard", shard});
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }

  // Compares all files except those that contain times, hosts or speeds.
  void ExpectEqual(const std::string& a, const std::string& b) const {
    for (const char* file :
         {"study.pbtxt", "metrics.jsonl", "table.csv", "table.md", "report.json", "report.html"}) {
      const std::string name = file;
      EXPECT_FALSE(Read(a + "/" + name).empty()) << name;
      // Messages show only the surroundings of the first difference.
      const std::string left = ReadWithoutTimes(a + "/" + name);
      const std::string right = ReadWithoutTimes(b + "/" + name);
      const auto at = std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first;
      const size_t begin = static_cast<size_t>(std::max<std::ptrdiff_t>(at - left.begin() - 40, 0));
      EXPECT_TRUE(left == right) << name << ": " << left.substr(begin, 120) << "\nand\n"
                                 << (begin < right.size() ? right.substr(begin, 120) : "");
    }
  }

  size_t Runs(const std::string& out) const {
    size_t runs = 0;
    for (const auto& run : std::filesystem::directory_iterator(Path(out + "/runs"))) {
      runs += std::filesystem::exists(run.path() / "result.json") ? 1 : 0;
    }
    return runs;
  }
};

TEST_F(CompareShardTest, ShardsMergeIntoTheFilesOfOneMachine) {
  ASSERT_EQ(Compare("whole").exit_code, 0);
  MakeShards(4);
  EXPECT_EQ(Runs("part0"), 2u);  // runs 0 and 4 of 0 to 5
  EXPECT_EQ(Runs("part3"), 1u);
  EXPECT_FALSE(Exists("part0/table.csv"));
  const Finished merged = Merge("merged", {"part0", "part1", "part2", "part3"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_THAT(merged.out, HasSubstr("merged/report.html"));
  ExpectEqual("whole", "merged");
  for (const char* file : {"result.json", "checkpoints/step-000020/model.safetensors"}) {
    const std::string name = std::string("/runs/post-seed2/") + file;
    EXPECT_FALSE(Read("whole" + name).empty()) << name;
    EXPECT_EQ(Read("whole" + name), Read("merged" + name)) << name;
  }
  // A second merge has nothing to do, and the study itself finds its runs there.
  EXPECT_EQ(Merge("merged", {"part0", "part1", "part2", "part3"}).exit_code, 0);
  const Finished study = Compare("merged");
  EXPECT_EQ(study.exit_code, 0) << study.err;
  EXPECT_THAT(study.err, Not(HasSubstr("loss ")));
  ExpectEqual("whole", "merged");
}

TEST_F(CompareShardTest, MissingRunsAreNamedAndNothingIsWritten) {
  MakeShards(3);
  const Finished merged = Merge("merged", {"part0", "part2"});
  EXPECT_EQ(merged.exit_code, 2);
  EXPECT_THAT(merged.err, AllOf(HasSubstr("2 of 6 runs are missing"), HasSubstr("pre-seed2"),
                                HasSubstr("post-seed2"), Not(HasSubstr("pre-seed1"))));
  EXPECT_FALSE(Exists("merged/study.pbtxt"));
  EXPECT_EQ(Merge("merged", {"part0", "part2", "part1"}).exit_code, 0);
}

TEST_F(CompareShardTest, OverlapsMayBeThereIfTheyAreEqual) {
  MakeShards(2);
  ASSERT_EQ(Compare("half", {"--shard", "0/2"}).exit_code, 0);
  EXPECT_EQ(Merge("merged", {"part0", "part1", "half"}).exit_code, 0);
  std::string result = Read("half/runs/pre-seed1/result.json");
  Write("half/runs/pre-seed1/result.json",
        result.replace(result.find("\"spikes\": 0"), 11, "\"spikes\": 7"));
  const Finished unequal = Merge("other", {"part0", "part1", "half"});
  EXPECT_EQ(unequal.exit_code, 2);
  EXPECT_THAT(unequal.err,
              AllOf(HasSubstr("pre-seed1"), HasSubstr("part0/runs"), HasSubstr("half/runs")));
}

TEST_F(CompareShardTest, AnotherStudyAndDamagedDirectoriesAreRefused) {
  MakeShards(2);
  ASSERT_EQ(Compare("longer", {"--shard", "1/2"}, 30).exit_code, 0);
  const Finished other = Merge("merged", {"part0", "longer"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("longer/study.pbtxt: is another study"),
                               HasSubstr("train.max_steps=30")));
  EXPECT_THAT(Merge("merged", {"part0", "nowhere"}).err,
              HasSubstr("nowhere: is not the directory of a study"));
  EXPECT_THAT(Merge("merged", {"part0", "part0"}).err, HasSubstr("named twice"));
  EXPECT_THAT(Merge("part1", {"part0", "part1"}).err, HasSubstr("is also --out"));
  Write("part1/runs/pre-seed2/metrics.jsonl", "");
  const Finished damaged = Merge("merged", {"part0", "part1"});
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("part1/runs/pre-seed2/metrics.jsonl"));
  EXPECT_FALSE(Exists("merged/study.pbtxt"));
}

TEST_F(CompareShardTest, WordsThatAreNoShard) {
  for (const char* word : {"3/3", "-1/3", "1", "1/", "a/b", "1/0"}) {
    const Finished result = Compare("study", {std::string("--shard=") + word});
    EXPECT_NE(result.exit_code, 0) << word;
    EXPECT_THAT(result.err, HasSubstr("I/N")) << word;
  }
  EXPECT_THAT(Compare("study", {"--merge", "part0"}).err, HasSubstr("--merge"));
  EXPECT_FALSE(Exists("study"));
}

}  // namespace
}  // namespace plumb::cli
