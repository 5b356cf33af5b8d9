// N5 and N6: the same call gives the same bits every time and on any number of threads, and calls
// that have nothing to do with each other may run at once.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int kRepeats = 20;  // of one call
constexpr int kRounds = 6;    // of many calls at once

// Several chunks, the last of them short.
constexpr int64_t kChunkedRows = 53;

std::string CheckRepeats(const Instance& instance, uint32_t dtype, uint64_t seed) {
  NormRun run(instance, dtype, kChunkedRows, seed);
  run.Step(1, 0);
  const Outcome first = run.Results();
  for (int i = 1; i < kRepeats; ++i) {
    run.Reset();
    run.Step(1, 0);
    const std::string text = FirstDifference(run.Results(), first, run.dim());
    if (!text.empty()) {
      return absl::StrCat(run.Name(), ": the same call again, time ", i + 1, ": ", text);
    }
  }
  for (const int threads : {1, 2, 4, 8}) {
    for (uint64_t delays = 1; delays <= 3; ++delays) {
      run.Reset();
      run.Step(threads, seed + delays);
      const std::string text = FirstDifference(run.Results(), first, run.dim());
      if (!text.empty()) {
        return absl::StrCat(run.Name(), ": the same chunks on ", threads, " threads: ", text);
      }
    }
  }
  return "";
}

// One of those that call at once. Calls come in bursts, with everything made ready before and
// compared afterwards, so that nearly all the time of a burst is the norm's.
class Caller {
 public:
  Caller(const Instance& instance, uint32_t dtype, uint64_t seed) {
    for (int i = 0; i < kBurst; ++i) {
      runs_.push_back(std::make_unique<NormRun>(instance, dtype, kBurstRows, seed));
    }
    RunOnce(runs_[0].get());
    alone_ = runs_[0]->Results();
  }

  void GetReady() {
    for (const auto& run : runs_) run->Reset();
  }
  void Burst() {
    try {
      for (const auto& run : runs_) RunOnce(run.get());
    } catch (const CheckEnded& ended) {
      text_ = ended.text;
    }
  }
  // What is wrong with the results of the burst, "" for nothing.
  std::string Compare() const {
    if (!text_.empty()) return text_;
    for (const auto& run : runs_) {
      const std::string text = FirstRowDifference(run->Results(), alone_, *run);
      if (!text.empty()) return absl::StrCat(run->Name(), ": ", text, " as alone");
    }
    return "";
  }

 private:
  static constexpr int kBurst = 6;
  static constexpr int64_t kBurstRows = 128;
  static void RunOnce(NormRun* run) {
    run->Forward(true);
    run->Backward();
  }
  std::vector<std::unique_ptr<NormRun>> runs_;
  Outcome alone_;
  std::string text_;
};

// Stops the thread that it reaches, in the middle of what it does, so that others go on meanwhile:
// on a busy machine, or one with a single core, calls would else rarely overlap.
void RestABit(int) {
  const int error = errno;
  const timespec rest = {0, 100'000};
  nanosleep(&rest, nullptr);
  errno = error;
}

// While it lives, the signal makes a thread rest.
class RestSignal {
 public:
  static constexpr int kSignal = SIGUSR2;
  RestSignal() {
    struct sigaction action = {};
    action.sa_handler = RestABit;
    action.sa_flags = SA_RESTART;
    sigaction(kSignal, &action, &before_);
  }
  ~RestSignal() { sigaction(kSignal, &before_, nullptr); }
  RestSignal(const RestSignal&) = delete;
  RestSignal& operator=(const RestSignal&) = delete;

 private:
  struct sigaction before_;
};

std::string CheckAtOnce(const std::vector<std::unique_ptr<Caller>>& callers) {
  for (const auto& caller : callers) caller->GetReady();
  const RestSignal rest;
  std::atomic<size_t> waiting{callers.size()}, running{callers.size()};
  std::vector<std::thread> threads;
  for (const auto& caller : callers) {
    threads.emplace_back([&caller, &waiting, &running] {
      --waiting;
      while (waiting.load() > 0) std::this_thread::yield();
      caller->Burst();
      --running;
    });
  }
  for (size_t i = 0; running.load() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(30));
    pthread_kill(threads[i % threads.size()].native_handle(), RestSignal::kSignal);
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& caller : callers) {
    const std::string text = caller->Compare();
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

void CheckDeterminism(const Subject& subject, Report* report) {
  for (const auto& instance : UsualInstances(*subject.norm)) {
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      const std::string text = CheckRepeats(*instance, dtype, subject.seed);
      if (!text.empty()) return report->Fail(text);
    }
  }
}

void CheckConcurrency(const Subject& subject, Report* report) {
  for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
    // Two calls of each instance, with other operands and parameters.
    const std::vector<std::unique_ptr<Instance>> instances = UsualInstances(*subject.norm);
    std::vector<std::unique_ptr<Caller>> callers;
    uint64_t seed = subject.seed;
    for (const auto& instance : instances) {
      for (int k = 0; k < 2; ++k) {
        callers.push_back(std::make_unique<Caller>(*instance, dtype, ++seed));
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      const std::string text = CheckAtOnce(callers);
      if (!text.empty()) return report->Fail(absl::StrCat("while other calls run, ", text));
    }
  }
}

}  // namespace plumb::check
