// R3 and R4: making and ending instances, when memory is short and when it is done a thousand
// times.
#include <dirent.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "plugins/check/guarded.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/robustness_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

const std::vector<uint32_t> kCreateDims = {64, 60, 1, 3, 100, 768};

// One create, and the destroy that belongs to it if it succeeds.
struct Attempt {
  plumb_status status = PLUMB_OK;
  plumb_norm_instance* out = nullptr;
  int64_t allocations = 0, outstanding = 0;
};

// Calls create with its `k`-th allocation failing, 0: none. `out` holds `before` at first.
Attempt Create(const plumb_norm_plugin& norm, uint32_t dim, int64_t k,
               plumb_norm_instance* before) {
  const std::vector<plumb_attr_value> values = DefaultValues(norm);
  char err[256] = {};
  Attempt attempt;
  attempt.out = before;
  AllocationWatch watch;
  if (k > 0) watch.FailAt(k);
  attempt.status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&TestHost(), dim, values.data(), &attempt.out, err, sizeof(err));
  });
  attempt.allocations = watch.allocations();
  watch.FailAt(0);
  if (attempt.status == PLUMB_OK) {
    Guarded(Function::kDestroy, dim, [&] { norm.destroy(attempt.out); });
  }
  attempt.outstanding = watch.outstanding();
  return attempt;
}

int64_t CountEntries(const char* directory) {
  DIR* open = opendir(directory);
  if (open == nullptr) return -1;
  int64_t n = 0;
  while (readdir(open) != nullptr) ++n;
  closedir(open);
  return n;
}

// What a process holds besides memory from the allocator.
struct Holdings {
  int64_t files = 0, threads = 0, maps = 0, mapped_bytes = 0;

  static Holdings Current() {
    Holdings now;
    now.files = CountEntries("/proc/self/fd");
    now.threads = CountEntries("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      // The heap belongs to the allocator, whose blocks are counted one by one.
      if (line.find("[heap]") != std::string::npos) continue;
      unsigned long long begin = 0, end = 0;
      if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) != 2) continue;
      ++now.maps;
      now.mapped_bytes += static_cast<int64_t>(end - begin);
    }
    return now;
  }
};

}  // namespace

void CheckAllocationFailure(const Subject& subject, Report* report) {
  if (!AllocationsAreSeen()) return report->Skip(kAllocationsUnseen);
  constexpr int64_t kMost = 2000;
  const plumb_norm_plugin& norm = *subject.norm;
  const uint32_t dim = FirstInstance(norm, kCreateDims)->dim();
  char untouched_storage = 0;
  auto* const untouched = reinterpret_cast<plumb_norm_instance*>(&untouched_storage);
  Create(norm, dim, 0, nullptr);  // what the first instance of a process allocates for all
  for (int64_t k = 1; k <= kMost; ++k) {
    const Attempt attempt = Create(norm, dim, k, untouched);
    if (attempt.allocations < k) return;  // it needed fewer: all have failed once
    // One that can do without this memory may go on.
    if (attempt.status == PLUMB_OK) continue;
    const std::string where =
        "create(dim=" + std::to_string(dim) + ") with allocation " + std::to_string(k) + " failing";
    if (attempt.status != PLUMB_RESOURCE_EXHAUSTED) {
      report->Fail(where + " answers " + StatusText(attempt.status) +
                   ", must be RESOURCE_EXHAUSTED");
    }
    if (attempt.out != untouched) report->Fail(where + " failed and changed *out");
    if (attempt.outstanding > 0) {
      report->Fail(where + " failed and kept " + std::to_string(attempt.outstanding) +
                   " blocks of memory");
    }
    if (report->failed()) return;
  }
  report->Note("create allocates more than " + std::to_string(kMost) +
               " times; no more failures were tried");
}

void CheckLeaks(const Subject& subject, Report* report) {
  constexpr int kRounds = 1000;
  // A map that comes and goes with the allocator's arenas is no leak; one for each instance is.
  constexpr int64_t kMapsAllowed = 16, kBytesAllowed = int64_t{2} << 20;
  const plumb_norm_plugin& norm = *subject.norm;
  const uint32_t dim = FirstInstance(norm, kCreateDims)->dim();
  const std::vector<plumb_attr_value> values = DefaultValues(norm);
  const auto make_and_end = [&] {
    const std::vector<plumb_attr_value> copy = values;
    const Instance instance(norm, dim, copy);
  };
  for (int i = 0; i < 10; ++i) make_and_end();

  const Holdings before = Holdings::Current();
  int64_t blocks = 0;
  {
    const AllocationWatch watch;
    for (int i = 0; i < kRounds; ++i) make_and_end();
    blocks = watch.outstanding();
  }
  Holdings after = Holdings::Current();
  // A thread that has been joined or has ended may still be on the list for a moment.
  for (int i = 0; i < 20 && after.threads > before.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    after = Holdings::Current();
  }
  const auto expect = [&](int64_t more, int64_t allowed, const char* what) {
    if (more <= allowed) return;
    report->Fail(std::to_string(kRounds) + " pairs of create(dim=" + std::to_string(dim) +
                 ") and destroy leave " + std::to_string(more) + " more " + what);
  };
  expect(blocks, 0, "blocks of memory");
  expect(after.files - before.files, 0, "open files");
  expect(after.threads - before.threads, 0, "threads");
  expect(after.maps - before.maps, kMapsAllowed, "mappings");
  expect(after.mapped_bytes - before.mapped_bytes, kBytesAllowed, "bytes mapped");
}

}  // namespace plumb::check
