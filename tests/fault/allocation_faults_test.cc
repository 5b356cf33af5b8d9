// SPDX-License-Identifier: Apache-2.0
// Each large allocation of opening a run, of its steps and of a checkpoint fails once. The call
// reports the error or works without, the process survives, and the run continues from its
// directory to the same bits as an undisturbed run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/train/train_run.h"
#include "tests/app/test_run.h"
#include "tests/fault/fault_file_system.h"

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> left{kNever};  // allocations before the one that fails

// Size of the smallest allocation that fails: weights, batches and workspaces. The process may end
// if a smaller one fails.
constexpr size_t kMinSize = size_t{16} << 10;

bool Fails(size_t size) {
  if (size < kMinSize || left.load(std::memory_order_relaxed) == kNever) return false;
  return left.fetch_sub(1) == 0;
}

void* Allocate(size_t size) {
  void* const memory = Fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

// Allocates the memory of AlignedBuffer.
extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  void* memory = nullptr;
  return !Fails(size) && posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

namespace plumb {
namespace {

class AllocationFaultsTest : public ::testing::Test {
 protected:
  AllocationFaultsTest() {
    std::filesystem::remove_all(test_.out());
    auto run = test_.Open(Request());
    TestRun::Steps(run.get(), 100);
    run.reset();
    whole_ = Weights();
    request_ = Request();
  }

  TrainRequest Request() const {
    TrainRequest request = test_.Request(test_.out());
    request.train_overrides = {
        {"max_steps", "3"}, {"checkpoint_seconds", "0"}, {"eval_interval", "2"}};
    request.probe.every = 2;
    return request;
  }
  std::string Weights() const {
    return ReadFile(JoinPath(test_.out(), "checkpoints/step-000003/model.safetensors")).value();
  }

  // Runs `body` with its first allocation failing, then with its second, and so on until none is
  // left to fail. `prepare` runs before each, `check` after each with enough memory.
  void StepThrough(const char* name, const std::function<void()>& prepare,
                   const std::function<absl::Status()>& body, const std::function<void()>& check) {
    const FaultStride stride;
    int64_t faults = 0, refused = 0;
    int64_t at = 0;
    for (bool failed = true; failed; at += stride.step(), ++faults) {
      prepare();
      left = at;
      const absl::Status status = body();
      failed = left.exchange(kNever) < 0;
      SCOPED_TRACE(absl::StrCat("allocation ", at, ": ", status.ToString()));
      if (!status.ok()) ++refused;
      EXPECT_TRUE(failed || status.ok());
      EXPECT_TRUE(status.ok() || !status.message().empty());
      check();
      if (HasFailure()) return;
    }
    std::cout << name << ": " << faults - 1 << " allocations failed, " << stride.ToString() << ", "
              << refused << " of them ended the call with an error, 0 lost" << std::endl;
  }

  // Completes the run in the directory, or starts it again if it cannot be resumed.
  void Finish() {
    TrainRequest request = test_.Resume();
    auto run = TrainRun::Open(test_.runtime(), request);
    if (!run.ok()) {
      std::filesystem::remove_all(test_.out());
      run = TrainRun::Open(test_.runtime(), Request());
    }
    ASSERT_TRUE(run.ok()) << run.status();
    TestRun::Steps(run->get(), 100);
    run->reset();
    EXPECT_EQ(Weights(), whole_);
  }

  FaultFileSystem files_{Fault{}};  // without a fault, only skips the syncs
  ScopedFileSystem scoped_{&files_};
  const TestRun test_;
  std::string whole_;
  TrainRequest request_;  // copied before allocations fail
  std::unique_ptr<TrainRun> run_;
};

TEST_F(AllocationFaultsTest, OpenReportsFailedAllocations) {
  StepThrough(
      "open", [this] { std::filesystem::remove_all(test_.out()); },
      [this] { return TrainRun::Open(test_.runtime(), request_).status(); },
      [this] { test_.runtime()->TakeWarnings(); });
  Finish();
}

TEST_F(AllocationFaultsTest, StepsAndCheckpointsLoseNothing) {
  StepThrough(
      "steps and checkpoint",
      [this] {
        std::filesystem::remove_all(test_.out());
        run_ = test_.Open(Request());
        ASSERT_NE(run_, nullptr);
      },
      [this] {
        while (!run_->done()) {
          const absl::Status status = run_->Step().status();
          if (!status.ok()) return status;
        }
        return absl::OkStatus();
      },
      [this] {
        run_.reset();
        Finish();
      });
}

TEST_F(AllocationFaultsTest, ResumingLosesNothing) {
  std::filesystem::remove_all(test_.out());
  {
    const auto run = test_.Open(Request());
    TestRun::Steps(run.get(), 2);
    ASSERT_TRUE(run->SaveCheckpoint().ok());
  }
  const std::string begun = test_.dir().File("begun");
  const TrainRequest resume = test_.Resume();
  std::filesystem::copy(test_.out(), begun, std::filesystem::copy_options::recursive);
  StepThrough(
      "resume",
      [&] {
        std::filesystem::remove_all(test_.out());
        std::filesystem::copy(begun, test_.out(), std::filesystem::copy_options::recursive);
      },
      [&] { return TrainRun::Open(test_.runtime(), resume).status(); },
      [this] {
        auto run = TrainRun::Open(test_.runtime(), test_.Resume());
        ASSERT_TRUE(run.ok()) << run.status();
        EXPECT_EQ((*run)->step(), 2);
      });
}

}  // namespace
}  // namespace plumb
