// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/stall_watch.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/local_ranks.h"

namespace plumb {
namespace {

struct Reports {
  std::vector<int> stalled;
  std::vector<std::string> failures;
};

// Calls `run` on each of `size` ranks, which are threads. Returns the reports to each rank.
std::vector<Reports> RunWatched(int size, const std::function<void(StallWatch*)>& run) {
  std::vector<Reports> told(size);
  auto locals = LocalRanks(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      StallWatchOptions options;
      options.grace_seconds = 1;
      options.on_stall = [&, rank](int stalled, double) { told[rank].stalled.push_back(stalled); };
      StallWatch* watch = nullptr;
      options.on_failure = [&, rank](int code, const std::string& text) {
        told[rank].failures.push_back(absl::StrCat(text, ", ", code));
        watch->Abort(code);
      };
      StallWatch ranks(std::move(locals[rank]), options);
      watch = &ranks;
      run(&ranks);
      (void)ranks.Barrier();
      ranks.Drain();
    });
  }
  for (std::thread& each : threads) each.join();
  return told;
}

void SleepSeconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(StallWatchTest, ShortWaitsAreNotReported) {
  for (const Reports& each : RunWatched(3, [](StallWatch* ranks) {
         for (int i = 0; i < 20; ++i) EXPECT_TRUE(ranks->Barrier().ok());
       })) {
    EXPECT_TRUE(each.stalled.empty());
    EXPECT_TRUE(each.failures.empty());
  }
}

// Rank 0 waits for 2, and 2 for 1, which computes.
TEST(StallWatchTest, NamesTheLastRankOfAChain) {
  const std::vector<Reports> told = RunWatched(3, [](StallWatch* ranks) {
    int number = 3;
    switch (ranks->rank()) {
      case 0:
        EXPECT_TRUE(Receive(ranks, 2, kTagStudy, &number, sizeof(number)).ok());
        break;
      case 1:
        SleepSeconds(5);
        EXPECT_TRUE(Send(ranks, 2, kTagStudy, &number, sizeof(number)).ok());
        break;
      case 2:
        EXPECT_TRUE(Receive(ranks, 1, kTagStudy, &number, sizeof(number)).ok());
        EXPECT_TRUE(Send(ranks, 0, kTagStudy, &number, sizeof(number)).ok());
        break;
    }
  });
  ASSERT_FALSE(told[0].stalled.empty());
  EXPECT_EQ(told[0].stalled[0], 1);
  EXPECT_TRUE(told[1].stalled.empty());
  EXPECT_TRUE(told[2].stalled.empty());
}

TEST(StallWatchTest, Rank1NamesRank0) {
  const std::vector<Reports> told = RunWatched(3, [](StallWatch* ranks) {
    if (ranks->rank() == 0) SleepSeconds(4);
    EXPECT_TRUE(ranks->Barrier().ok());
  });
  EXPECT_TRUE(told[0].stalled.empty());
  ASSERT_FALSE(told[1].stalled.empty());
  EXPECT_EQ(told[1].stalled[0], 0);
}

TEST(StallWatchTest, Rank0LearnsOfAFailureWhileItWaits) {
  const std::vector<Reports> told = RunWatched(3, [](StallWatch* ranks) {
    int number = 0;
    if (ranks->rank() == 2) {
      EXPECT_EQ(ranks->ReportFailure(7, "no disk", 60).code(), absl::StatusCode::kAborted);
    } else {
      EXPECT_EQ(Receive(ranks, 2, kTagStudy, &number, sizeof(number)).code(),
                absl::StatusCode::kAborted);
    }
  });
  EXPECT_EQ(told[0].failures, std::vector<std::string>{"no disk, 7"});
  EXPECT_TRUE(told[1].failures.empty());
}

}  // namespace
}  // namespace plumb
