// Every allocation of a call may fail, the small ones too: a status, nothing is lost, the next call
// works. Replaces operator new of this program.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/capi/host_life.h"

namespace {

std::atomic<int64_t> allocations{0}, fails_at{-1};

void* Allocate(size_t size) {
  if (++allocations == fails_at) throw std::bad_alloc();
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return ++allocations == fails_at ? nullptr : std::malloc(size);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace plumb {
namespace {

TEST(SmallMemoryTest, EverySmallAllocationMayFail) {
  const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
  const auto live = [&](std::vector<float>* floats, plumb_error** error) {
    floats->reserve(100000);  // the test's own
    allocations = 0;
    return Live(runtime.get, floats, nullptr, error);
  };
  std::vector<float> expected;
  EXPECT_PLUMB_OK(live(&expected, err));
  std::vector<float> again;  // the first life makes what the process keeps
  EXPECT_PLUMB_OK(live(&again, err));
  EXPECT_EQ(again, expected);
  const int64_t in_all = allocations;
  EXPECT_GT(in_all, 1000);
  // All of them are some minutes; a step that is no divisor of what repeats.
  const int64_t step = std::max<int64_t>(1, in_all / 400) | 1;
  int failed = 0, done_without = 0;
  for (int64_t i = 1; i <= in_all; i += step) {
    SCOPED_TRACE(i);
    std::vector<float> floats;
    ErrorHandle error;
    fails_at = i;
    const plumb_status status = live(&floats, &error.get);
    fails_at = -1;
    if (status == PLUMB_OK) {  // a hint that was done without, as the number of processors
      ASSERT_EQ(floats, expected);
      ++done_without;
    } else {
      ASSERT_EQ(status, PLUMB_RESOURCE_EXHAUSTED) << plumb_error_message(error.get);
      ++failed;
    }
  }
  EXPECT_GT(failed, 20 * done_without);
  std::vector<float> floats;
  EXPECT_PLUMB_OK(live(&floats, err));
  EXPECT_EQ(floats, expected);
}

}  // namespace
}  // namespace plumb
