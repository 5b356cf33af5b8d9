#include "runtime/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace plumb {
namespace {

TEST(ParallelForTest, VisitsEveryIndexOnce) {
  for (const int threads : {0, 1, 2, 3, 8}) {
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
      ParallelFor(n, threads, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
      for (const std::atomic<int>& count : visits) EXPECT_EQ(count, 1) << n << " on " << threads;
    }
  }
}

TEST(ParallelForTest, NestedCallsVisitEveryIndexOnceToo) {
  std::vector<std::atomic<int>> visits(12);
  ParallelFor(3, 2, [&](int64_t i) {
    ParallelFor(4, 2, [&](int64_t j) { ++visits[static_cast<size_t>(4 * i + j)]; });
  });
  for (const std::atomic<int>& count : visits) EXPECT_EQ(count, 1);
}

TEST(TaskCountTest, LittleWorkIsOneTask) {
  EXPECT_EQ(TaskCount(1000, 0), 1);
  EXPECT_EQ(TaskCount(1000, kMinParallelWork - 1), 1);
  EXPECT_EQ(TaskCount(1000, kMinParallelWork), 8);
}

TEST(TaskCountTest, IsAtMostTheItemsAndAtMost64) {
  EXPECT_EQ(TaskCount(0, int64_t{1} << 40), 1);
  EXPECT_EQ(TaskCount(3, int64_t{1} << 40), 3);
  EXPECT_EQ(TaskCount(1 << 20, int64_t{1} << 40), 64);
}

TEST(TaskRangeTest, TasksCutTheItemsWithoutGapOrOverlapAndEvenly) {
  for (const int64_t items : {0, 1, 5, 64, 1001}) {
    for (const int64_t n : {1, 2, 7, 64}) {
      int64_t next = 0;
      for (int64_t i = 0; i < n; ++i) {
        const Range range = TaskRange(items, n, i);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end - range.begin, items / n);
        EXPECT_LE(range.end - range.begin, items / n + 1);
        next = range.end;
      }
      EXPECT_EQ(next, items);
    }
  }
}

}  // namespace
}  // namespace plumb
