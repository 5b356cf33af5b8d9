#include "runtime/ops/scratch_workers.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"

namespace plumb {
namespace {

constexpr int64_t kMuchWork = int64_t{1} << 30;
constexpr int64_t kScratchBytes = 100;

// How often each item ran, for which all `next` were right.
std::vector<int> Runs(int64_t items, int threads) {
  const ScratchWorkers workers(items, kMuchWork, kScratchBytes);
  AlignedBuffer scratch(workers.scratch_bytes());
  std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
  KernelArgs args{};
  args.scratch = scratch.data();
  args.threads = threads;
  workers.Run(args, [&](int64_t item, int64_t next, float* piece) {
    const std::byte* from = scratch.data();
    const std::byte* at = reinterpret_cast<const std::byte*>(piece);
    const bool inside = from <= at && at + kScratchBytes <= from + workers.scratch_bytes();
    if (!inside || (next != -1 && (next != item + 1 || next >= items))) return;
    runs[static_cast<size_t>(item)].fetch_add(1);
  });
  return {runs.begin(), runs.end()};
}

TEST(ScratchWorkersTest, EveryItemRunsOnceForAnyNumberOfThreads) {
  for (const int64_t items : {1, 2, 3, 48, 63, 64, 65, 300}) {
    for (const int threads : {1, 2, 3, 4, 100}) {
      SCOPED_TRACE(testing::Message() << items << " items, " << threads << " threads");
      EXPECT_EQ(Runs(items, threads), std::vector<int>(static_cast<size_t>(items), 1));
    }
  }
}

TEST(ScratchWorkersTest, OneThreadTakesItemsInOrderAndKnowsTheNext) {
  const ScratchWorkers workers(5, kMuchWork, kScratchBytes);
  AlignedBuffer scratch(workers.scratch_bytes());
  KernelArgs args{};
  args.scratch = scratch.data();
  args.threads = 1;
  std::vector<int64_t> items, nexts;
  workers.Run(args, [&](int64_t item, int64_t next, float* /*piece*/) {
    items.push_back(item);
    nexts.push_back(next);
  });
  EXPECT_EQ(items, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(nexts, (std::vector<int64_t>{1, 2, 3, 4, -1}));
}

TEST(ScratchWorkersTest, AThreadPreparesItsScratchOnceBeforeItsFirstItem) {
  constexpr int64_t kItems = 65;
  const ScratchWorkers workers(kItems, kMuchWork, kScratchBytes);
  for (const int threads : {1, 2, 3, 4, 100}) {
    AlignedBuffer scratch(workers.scratch_bytes());
    std::memset(scratch.data(), 0, static_cast<size_t>(workers.scratch_bytes()));
    KernelArgs args{};
    args.scratch = scratch.data();
    args.threads = threads;
    std::atomic<int> items{0}, wrong{0};
    workers.RunPrepared(
        args, [](float* piece) { piece[0] += 1; },
        [&](int64_t, int64_t, const float* piece) {
          items.fetch_add(1);
          if (piece[0] != 1) wrong.fetch_add(1);
        });
    EXPECT_EQ(items.load(), kItems) << threads << " threads";
    EXPECT_EQ(wrong.load(), 0) << threads << " threads";
  }
}

TEST(ScratchWorkersTest, FewerItemsThanPlannedRunOnceEach) {
  const ScratchWorkers workers(64, kMuchWork, kScratchBytes);
  AlignedBuffer scratch(workers.scratch_bytes());
  for (const int64_t items : {1, 2, 5, 64}) {
    KernelArgs args{};
    args.scratch = scratch.data();
    args.threads = 4;
    std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
    workers.RunItems(args, items, [&](int64_t item, int64_t next, float* /*piece*/) {
      ASSERT_LT(item, items);
      ASSERT_LT(next, items);
      runs[static_cast<size_t>(item)].fetch_add(1);
    });
    EXPECT_EQ(std::vector<int>(runs.begin(), runs.end()),
              std::vector<int>(static_cast<size_t>(items), 1));
  }
}

}  // namespace
}  // namespace plumb
