// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "runtime/base/float_mode.h"

namespace plumb {
namespace {

// Counts how often each task ran, on whichever thread.
class Visits {
 public:
  explicit Visits(int64_t n) : counts_(static_cast<size_t>(n)) {}
  void Add(int64_t i) { counts_[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed); }
  bool AllOnce() const {
    for (const std::atomic<int>& count : counts_) {
      if (count.load(std::memory_order_relaxed) != 1) return false;
    }
    return true;
  }

 private:
  std::vector<std::atomic<int>> counts_;
};

void Sleep(int microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

void WaitFor(const std::atomic<bool>& flag) {
  while (!flag) Sleep(100);
}

// Waits for the child. Returns true if it ended by _exit(0).
bool Succeeded(pid_t child) {
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST(ParallelForTest, VisitsEveryIndexOnce) {
  for (const int threads : {0, 1, 2, 3, 8, 200, 2000}) {
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      Visits visits(n);
      ParallelFor(n, threads, [&](int64_t i) { visits.Add(i); });
      EXPECT_TRUE(visits.AllOnce()) << n << " on " << threads;
    }
  }
}

// Long tasks use all allowed threads, which are more than the processors. When the call returns,
// all results are visible in plain memory, including those of the tasks that end last.
TEST(ParallelForTest, ReturnsAfterAllTasks) {
  for (const int threads : {2, 3, 9}) {
    const std::thread::id caller = std::this_thread::get_id();
    for (int round = 0; round < 20; ++round) {
      std::vector<int> results(16, 0);
      ParallelFor(16, threads, [&](int64_t i) {
        Sleep(std::this_thread::get_id() == caller ? 50 : 500);
        results[static_cast<size_t>(i)] += 1;
      });
      EXPECT_EQ(results, std::vector<int>(16, 1)) << threads;
    }
  }
}

TEST(ParallelForTest, RunsManySmallJobs) {
  std::atomic<int64_t> sum = 0;
  int64_t expected = 0;
  for (int job = 0; job < 200000; ++job) {
    const int64_t n = 2 + job % 7;
    ParallelFor(n, 2 + job % 3, [&](int64_t i) { sum.fetch_add(i, std::memory_order_relaxed); });
    expected += n * (n - 1) / 2;
  }
  EXPECT_EQ(sum, expected);
}

// Workers fall asleep between the jobs. The pauses vary so that the next job arrives at all stages
// of that.
TEST(ParallelForTest, WakesWorkersInAnyState) {
  for (int job = 0; job < 300; ++job) {
    Visits visits(8);
    ParallelFor(8, 4, [&](int64_t i) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(30);
      while (std::chrono::steady_clock::now() < end) {
      }
      visits.Add(i);
    });
    EXPECT_TRUE(visits.AllOnce());
    Sleep(job % 10 * 20);
  }
}

// Tasks that run at the same time have different slots, and slots are below the number of threads.
TEST(ParallelForTest, SlotsAreExclusive) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t n : {1, 2, 5, 40}) {
      const int64_t slots = std::min<int64_t>(n, threads);
      std::vector<std::atomic<bool>> busy(static_cast<size_t>(slots));
      std::atomic<int> wrong = 0;
      ParallelFor(n, threads, [&](int64_t, int slot) {
        if (slot < 0 || slot >= slots) {
          ++wrong;
          return;
        }
        if (busy[static_cast<size_t>(slot)].exchange(true)) ++wrong;
        Sleep(20);
        busy[static_cast<size_t>(slot)] = false;
      });
      EXPECT_EQ(wrong, 0) << n << " tasks on " << threads;
    }
  }
}

// Workers take the caller's floating-point mode, whichever caller they worked for before.
TEST(ParallelForTest, WorkersTakeTheCallersFloatingPointMode) {
  const auto denormal_results = [] {
    std::atomic<int> denormal = 0;
    ParallelFor(8, 4, [&](int64_t) {
      Sleep(200);
      volatile float small = std::numeric_limits<float>::min();
      if (small / 2 != 0) ++denormal;
    });
    return denormal.load();
  };
  EXPECT_EQ(denormal_results(), 8);
  {
    const ScopedNoDenormals no_denormals;
    EXPECT_EQ(denormal_results(), 0);
  }
  EXPECT_EQ(denormal_results(), 8);
}

TEST(ParallelForTest, NestedCallsVisitEveryIndexOnceOnTheThreadOfTheirTask) {
  Visits visits(12);
  std::atomic<bool> moved = false;
  ParallelFor(3, 2, [&](int64_t i) {
    const std::thread::id here = std::this_thread::get_id();
    ParallelFor(4, 2, [&](int64_t j) {
      if (std::this_thread::get_id() != here) moved = true;
      visits.Add(4 * i + j);
    });
  });
  EXPECT_TRUE(visits.AllOnce());
  EXPECT_FALSE(moved);
}

TEST(ParallelForTest, CallersInSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&wrong, c] {
      for (int round = 0; round < 500; ++round) {
        const int64_t n = 1 + (round * 7 + c) % 70;
        Visits visits(n);
        ParallelFor(n, 2 + c, [&](int64_t i) {
          if (round % 50 == 0) Sleep(30);
          visits.Add(i);
        });
        if (!visits.AllOnce()) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

// The job of one caller is stuck with a worker in it. Meanwhile the jobs of another caller
// complete.
TEST(ParallelForTest, AHeldWorkerDoesNotHoldOtherCallers) {
  std::atomic<bool> held = false, release = false, stuck_is_done = false;
  std::thread stuck([&] {
    const std::thread::id caller = std::this_thread::get_id();
    ParallelFor(64, 2, [&](int64_t i) {
      if (i == 0) Sleep(1000);  // time for a worker to join
      if (std::this_thread::get_id() != caller) held = true;
      if (i > 0) WaitFor(held), WaitFor(release);
    });
    stuck_is_done = true;
  });
  WaitFor(held);
  for (int job = 0; job < 100; ++job) {
    Visits visits(20);
    ParallelFor(20, 2, [&](int64_t i) { visits.Add(i); });
    EXPECT_TRUE(visits.AllOnce());
  }
  EXPECT_FALSE(stuck_is_done);
  release = true;
  stuck.join();
}

// A caller whose worker is held in its first task runs all other tasks itself.
TEST(ParallelForTest, TasksOfASlowThreadAreStolen) {
  std::atomic<int> by_worker = 0, by_caller = 0;
  std::atomic<bool> held = false;
  const std::thread::id caller = std::this_thread::get_id();
  ParallelFor(64, 2, [&](int64_t i) {
    if (std::this_thread::get_id() == caller) {
      if (i == 0) Sleep(1000);
      if (i > 0) WaitFor(held);
      ++by_caller;
    } else {
      held = true;
      while (by_caller < 63) Sleep(100);
      ++by_worker;
    }
  });
  EXPECT_EQ(by_caller, 63);
  EXPECT_EQ(by_worker, 1);
}

TEST(ParallelForTest, ForkedChildHasItsOwnWorkers) {
  const auto run = [] {
    std::atomic<bool> helped = false;
    const std::thread::id caller = std::this_thread::get_id();
    Visits visits(64);
    ParallelFor(64, 3, [&](int64_t i) {
      if (i == 0) Sleep(1000);
      if (std::this_thread::get_id() != caller) helped = true;
      if (i > 0) WaitFor(helped);
      visits.Add(i);
    });
    return visits.AllOnce();
  };
  EXPECT_TRUE(run());
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(run() && run() ? 0 : 1);
    EXPECT_TRUE(Succeeded(child));
    EXPECT_TRUE(run());
  }
}

// ThreadSanitizer cannot follow threads of a child whose parent had several.
#if !defined(__SANITIZE_THREAD__)
// The process forks while other threads run jobs and start workers.
TEST(ParallelForTest, ChildForkedDuringAJobWorks) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> callers;
  for (int c = 0; c < 2; ++c) {
    callers.emplace_back([&stop] {
      while (!stop) ParallelFor(20, 4, [](int64_t) { Sleep(10); });
    });
  }
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Visits visits(64);
      ParallelFor(64, 4, [&](int64_t task) {
        Sleep(20);
        visits.Add(task);
      });
      _exit(visits.AllOnce() ? 0 : 1);
    }
    EXPECT_TRUE(Succeeded(child));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

#endif

// Runs `body` in a new process, for tests that need one in which no job has run yet.
void ExpectSuccessInNewProcess(const std::function<bool()>& body) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(_exit(body() ? 0 : 1), testing::ExitedWithCode(0), "");
}

bool AllOnceWithLongTasks(int threads) {
  Visits visits(64);
  ParallelFor(64, threads, [&](int64_t i) {
    Sleep(100);
    visits.Add(i);
  });
  return visits.AllOnce();
}

TEST(ParallelForDeathTest, ManyThreadsOnOneProcessorDoAllTasks) {
  ExpectSuccessInNewProcess([] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    }
    if (sched_setaffinity(0, sizeof(one), &one) != 0) return false;
    return AllOnceWithLongTasks(2) && AllOnceWithLongTasks(16);
  });
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // sanitizers need memory for each thread
TEST(ParallelForDeathTest, WorksWithoutRefusedThreads) {
  ExpectSuccessInNewProcess([] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // The limit leaves a little memory, but not enough for a thread's stack.
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (2 << 20));
    const rlimit memory = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &memory) != 0) return false;
    return AllOnceWithLongTasks(4) && AllOnceWithLongTasks(4);
  });
}
#endif

TEST(ParallelForDeathTest, AProcessEndsWhileWorkersAreAwake) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((AllOnceWithLongTasks(4), exit(7)), testing::ExitedWithCode(7), "");
}

TEST(TaskCountTest, SmallWorkIsOneTask) {
  EXPECT_EQ(TaskCount(1000, 0), 1);
  EXPECT_EQ(TaskCount(1000, kMinParallelWork - 1), 1);
  EXPECT_EQ(TaskCount(1000, kMinParallelWork), 2);
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
