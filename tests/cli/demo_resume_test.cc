// SPDX-License-Identifier: Apache-2.0
// plumb demo is stopped from outside, at an arbitrary moment, and started again.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::HasSubstr;

class DemoResumeTest : public PlumbTest {};

TEST_F(DemoResumeTest, InterruptedDemoResumesToTheSameTables) {
  const std::vector<std::string> demo = {"demo", "--seeds", "2", "--threads", "1"};
  PlumbProcess process(directory(), demo);
  WaitForSteps("plumb-demo/runs/post-seed1", 20, &process);
  process.Signal(SIGINT);
  const Finished stopped = process.Wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("interrupted; the same command resumes it:\n"
                                     "  plumb demo --out plumb-demo --seeds 2"));
  EXPECT_FALSE(Exists("plumb-demo/report.html"));
  EXPECT_TRUE(Exists("plumb-demo/runs/post-seed1/latest"));

  const Finished resumed = RunPlumb(demo);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(Exists("plumb-demo/report.html"));
  const Finished unbroken = RunPlumb({"demo", "--seeds", "2", "--out", "unbroken"});
  ASSERT_EQ(unbroken.exit_code, 0) << unbroken.err;
  for (const std::string file : {"table.csv", "table.md", "runs.csv"}) {
    EXPECT_FALSE(Read("unbroken/" + file).empty()) << file;
    EXPECT_EQ(Read("plumb-demo/" + file), Read("unbroken/" + file)) << file;
  }
}

}  // namespace
}  // namespace plumb::cli
