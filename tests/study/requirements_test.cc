// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/plan.h"

#include <gtest/gtest.h>

#include "runtime/study/run_record.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

void ExpectDivision(const StudyDivision& division, int workers, int threads) {
  EXPECT_EQ(division.workers, workers);
  EXPECT_EQ(division.threads, threads);
}

TEST(DivideTest, GivesEachRunAThread) {
  constexpr int64_t kMuch = int64_t{1} << 40, kGiB = 1 << 30;
  ExpectDivision(Divide(8, 100, 1000, kMuch), 8, 1);
  ExpectDivision(Divide(8, 3, 1000, kMuch), 3, 2);
  ExpectDivision(Divide(8, 1, 1000, kMuch), 1, 8);
  ExpectDivision(Divide(8, 100, kGiB, 6 * kGiB), 4, 2);
  ExpectDivision(Divide(8, 100, kGiB, 3 * kGiB), 2, 4);
  ExpectDivision(Divide(8, 100, kGiB, kGiB), 1, 8);
  ExpectDivision(Divide(8, 100, kGiB, 10), 1, 8);  // the run itself reports the lack of memory
  ExpectDivision(Divide(1, 100, 1000, kMuch), 1, 1);
  ExpectDivision(Divide(8, 0, 0, kMuch), 1, 8);  // all runs have ended
}

TEST(RequirementsTest, DiskFollowsTheStateOfRuns) {
  const ScratchDir scratch;
  StudyPlan plan;
  plan.out = scratch.path();
  plan.groups.resize(2);
  for (PlanGroup& group : plan.groups) {
    group.disk.checkpoint = 100;
    group.disk.total = 350;
  }
  plan.groups[0].memory.total = 5000;
  plan.groups[1].memory.total = 7000;
  for (const size_t group : {0, 0, 1}) {
    plan.runs.push_back({group, 1, scratch.File("run" + std::to_string(plan.runs.size())), {}});
    ASSERT_TRUE(MakeDirectories(plan.runs.back().directory).ok());
  }
  const StudyRequirements fresh = ComputeRequirements(plan, 8).value();
  EXPECT_EQ(fresh.runs, 3u);
  EXPECT_EQ(fresh.ended, 0u);
  EXPECT_EQ(fresh.disk, 3 * 350);
  EXPECT_EQ(fresh.division.workers, 3);
  EXPECT_EQ(fresh.memory, 3 * 7000);

  scratch.Write("run0/model.pbtxt", "");  // the last file that a starting run writes
  EXPECT_EQ(ComputeRequirements(plan, 8)->disk, 100 + 2 * 350);
  RunResult result;
  result.step = 1;
  ASSERT_TRUE(WriteRunResult(plan.runs[2].directory, result).ok());
  const StudyRequirements rest = ComputeRequirements(plan, 8).value();
  EXPECT_EQ(rest.ended, 1u);
  EXPECT_EQ(rest.disk, 100 + 350);
  EXPECT_EQ(rest.division.workers, 2);
  EXPECT_EQ(rest.memory, 2 * 5000);
  StudyRequirements full = rest;
  full.free_disk = 449;
  EXPECT_EQ(CheckFits(full, plan).code(), absl::StatusCode::kResourceExhausted);
  full.free_disk = 450;
  EXPECT_TRUE(CheckFits(full, plan).ok());
}

}  // namespace
}  // namespace plumb
