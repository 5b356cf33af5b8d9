// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/launch.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/local_ranks.h"

namespace plumb {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Messages and exit codes of the ranks of a job.
struct Outcome {
  std::vector<int> codes;
  std::vector<std::string> errors, notes;
};

// Result of a rank, which is passed to End.
struct Ends {
  absl::Status status;
  int code = 0;
};
Outcome RunJob(int size, double grace_seconds, const std::function<Ends(Launch*)>& run) {
  Outcome outcome;
  outcome.codes.resize(size);
  std::mutex mutex;
  LaunchOptions options;
  options.grace_seconds = grace_seconds;
  options.print_error = [&](const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex);
    outcome.errors.push_back(text);
  };
  options.print_note = [&](const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex);
    outcome.notes.push_back(text);
  };
  auto ranks = LocalRanks(size);
  // The job starts after all ranks have joined. A rank that ends the job earlier is another case.
  std::condition_variable joined;
  int begun = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto launch = Launch::Of(std::move(ranks[rank]), options);
      {
        std::unique_lock<std::mutex> lock(mutex);
        ++begun;
        joined.notify_all();
        joined.wait(lock, [&] { return begun == size; });
      }
      ASSERT_TRUE(launch.ok()) << launch.status();
      const Ends ends = run(launch->get());
      outcome.codes[rank] = (*launch)->End(ends.status, ends.code);
    });
  }
  for (std::thread& each : threads) each.join();
  return outcome;
}

absl::Status WaitFor(Launch* launch, int rank) {
  int number = 0;
  return Receive(launch->ranks(), rank, kTagStudy, &number, sizeof(number));
}

TEST(LaunchTest, RanksEndTogether) {
  for (int size : {1, 2, 5}) {
    const Outcome outcome = RunJob(size, 60, [](Launch* launch) -> Ends {
      EXPECT_TRUE(launch->ranks()->Barrier().ok());
      EXPECT_EQ(launch->communicator() == nullptr, launch->size() == 1);
      return {};
    });
    EXPECT_THAT(outcome.codes, Each(0));
    EXPECT_THAT(outcome.errors, IsEmpty());
  }
}

TEST(LaunchTest, FirstNonzeroCodeIsShared) {
  const Outcome outcome = RunJob(4, 60, [](Launch* launch) -> Ends {
    return {absl::OkStatus(), launch->rank() < 2 ? 0 : 128 + launch->rank()};
  });
  EXPECT_THAT(outcome.codes, Each(130));
  EXPECT_THAT(outcome.errors, IsEmpty());
}

// The other ranks wait for the failing rank, as in the middle of a step.
TEST(LaunchTest, AnErrorOfOneRankIsReportedOnce) {
  for (int bad = 0; bad < 3; ++bad) {
    const Outcome outcome = RunJob(3, 60, [bad](Launch* launch) -> Ends {
      if (launch->rank() == bad) return {absl::NotFoundError("no file x"), 2};
      return {WaitFor(launch, bad), 1};
    });
    EXPECT_THAT(outcome.errors, ElementsAre(bad == 0 ? "no file x"
                                                     : absl::StrCat("rank ", bad, " on host host",
                                                                    bad, ": no file x")));
    EXPECT_EQ(outcome.codes[bad], 2);
  }
}

TEST(LaunchTest, AnErrorOfAllRanksNamesNoRank) {
  const Outcome outcome = RunJob(4, 60, [](Launch*) -> Ends {
    return {absl::InvalidArgumentError("model.pbtxt:1:1: no such field"), 2};
  });
  EXPECT_THAT(outcome.errors, ElementsAre("model.pbtxt:1:1: no such field"));
  EXPECT_THAT(outcome.codes, Each(2));
}

// All ranks see the same failure, such as a step that diverges, each with its own message.
TEST(LaunchTest, ACommonErrorIsReportedByRankZero) {
  for (const absl::StatusCode code : {absl::StatusCode::kAborted, absl::StatusCode::kUnavailable}) {
    const Outcome outcome = RunJob(3, 60, [code](Launch* launch) -> Ends {
      if (launch->is_first()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return {absl::Status(code, absl::StrCat("seen by ", launch->rank())), 4};
    });
    EXPECT_THAT(outcome.errors, ElementsAre("seen by 0"));
    EXPECT_THAT(outcome.codes, Each(4));
  }
}

TEST(LaunchTest, StalledRankIsNamed) {
  for (const int slow : {0, 1}) {
    const Outcome outcome = RunJob(3, 0.3, [slow](Launch* launch) -> Ends {
      int number = 5;
      if (launch->rank() != slow) return {WaitFor(launch, slow), 0};
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      for (int to = 0; to < launch->size(); ++to) {
        if (to == slow) continue;
        EXPECT_TRUE(Send(launch->ranks(), to, kTagStudy, &number, sizeof(number)).ok());
      }
      return {};
    });
    EXPECT_THAT(outcome.errors, IsEmpty());
    EXPECT_THAT(outcome.codes, Each(0));
    ASSERT_FALSE(outcome.notes.empty());
    EXPECT_THAT(outcome.notes[0],
                HasSubstr(absl::StrCat("s for rank ", slow, " on host host", slow)));
  }
}

TEST(LaunchTest, AnyOfRanks) {
  const Outcome outcome = RunJob(3, 60, [](Launch* launch) -> Ends {
    EXPECT_EQ(*launch->Any(launch->rank() == 2), true);
    EXPECT_EQ(*launch->Any(false), false);
    return {};
  });
  EXPECT_THAT(outcome.codes, Each(0));
}

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~EnvironmentVariable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(LaunchTest, WithoutLauncherIsOneRank) {
  ASSERT_FALSE(Launch::IsLaunched());
  LaunchOptions options;
  options.mpi_library = "/nowhere/libplumb-mpi.so";
  const auto launch = Launch::Find(options);
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ((*launch)->size(), 1);
  EXPECT_EQ((*launch)->End(absl::OkStatus(), 4), 4);
}

TEST(LaunchTest, MissingMpiLibraryIsAnError) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const EnvironmentVariable rank(name, "3");
    EXPECT_TRUE(Launch::IsLaunched());
    EXPECT_EQ(Launch::LaunchedRank(), 3);
    LaunchOptions options;
    options.mpi_library = "/nowhere/libplumb-mpi.so";
    const auto launch = Launch::Find(options);
    EXPECT_EQ(launch.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(launch.status().message(), HasSubstr("-DPLUMB_MPI=ON"));
    const EnvironmentVariable none("PLUMB_MPI_LIBRARY", "");
    EXPECT_TRUE(Launch::Find(options).ok());
  }
}

}  // namespace
}  // namespace plumb
