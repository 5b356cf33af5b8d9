// Studies in shards, from the commands to the tables.

#include <gmock/gmock.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CompareShardTest : public PlumbTest {
 protected:
  Finished Compare(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "compare", "pre.pbtxt", "post.pbtxt", "--data",    "names.txt", "--train",
        "train.pbtxt", "--set", "train.max_steps=20", "--samples", "2", "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
};

TEST_F(CompareShardTest, ThreeShardsMakeTheFilesOfOneMachine) {
  ASSERT_EQ(Compare("whole").exit_code, 0);
  for (const char* shard : {"0", "1", "2"}) {
    const Finished part = Compare(shard, {"--shard", std::string(shard) + "/3"});
    ASSERT_EQ(part.exit_code, 0) << part.err;
    EXPECT_THAT(part.out, HasSubstr("2 runs of shard"));
    EXPECT_FALSE(Exists(std::string(shard) + "/table.csv"));
  }
  EXPECT_TRUE(Exists("1/runs/pre-seed2"));
  EXPECT_FALSE(Exists("1/runs/pre-seed1"));

  const Finished early = RunPlumb({"compare", "--merge", "0", "2", "--out", "study"});
  EXPECT_NE(early.exit_code, 0);
  EXPECT_THAT(early.err, AllOf(HasSubstr("pre, seed 2"), HasSubstr("post, seed 2")));
  const Finished merged = RunPlumb({"compare", "--merge", "2", "0", "1", "--out", "study"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  for (const char* file : {"table.csv", "table.md", "metrics.jsonl", "study.pbtxt",
                           "runs/post-seed3/result.json", "runs/post-seed3/run.json",
                           "runs/post-seed3/checkpoints/step-000020/model.safetensors"}) {
    const std::string name = file;
    EXPECT_FALSE(Read("whole/" + name).empty()) << name;
    EXPECT_EQ(Read("study/" + name), Read("whole/" + name)) << name;
  }
}

TEST_F(CompareShardTest, WordsThatAreNoShardAreRefused) {
  const Finished wrong = Compare("study", {"--shard", "3/3"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("0/3 to 2/3"));
  const Finished both = Compare("study", {"--shard", "0/3", "--merge", "elsewhere"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(RunPlumb({"compare", "--merge", "elsewhere", "--out", "study"}).err,
              HasSubstr("elsewhere: is no study's directory"));
  EXPECT_FALSE(Exists("study"));
}

}  // namespace
}  // namespace plumb::cli
