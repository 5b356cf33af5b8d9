// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/process.h"

namespace plumb {
namespace {

// Returns the number in a file of one number; -1 for "max" or if there is none.
int64_t NumberIn(const std::string& path) {
  const std::vector<std::string> words = ReadSystemWords(path);
  int64_t n;
  return words.size() == 1 && absl::SimpleAtoi(words[0], &n) && n >= 0 ? n : -1;
}

// Returns the value after `name` in /proc/meminfo or /proc/self/status, in bytes; -1 if missing.
int64_t ReadKilobytes(const std::string& path, absl::string_view name) {
  const std::vector<std::string> words = ReadSystemWords(path);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    int64_t kilobytes;
    if (words[i] == name && absl::SimpleAtoi(words[i + 1], &kilobytes)) return kilobytes * 1024;
  }
  return -1;
}

void Lower(int64_t bytes, int64_t available, const char* by, MemoryLimit* limit) {
  limit->available = std::min(limit->available, std::max<int64_t>(0, available));
  if (bytes >= limit->bytes) return;
  limit->bytes = bytes;
  limit->by = by;
}

int64_t ResourceLimit(int resource) {
  struct rlimit value;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) return -1;
  if (value.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(
      std::min<rlim_t>(value.rlim_cur, std::numeric_limits<int64_t>::max() / 2));
}

void LowerToResource(int resource, absl::string_view used, const char* by, MemoryLimit* limit) {
  const int64_t bytes = ResourceLimit(resource);
  if (bytes < 0) return;
  Lower(bytes, bytes - std::max<int64_t>(0, ReadKilobytes("/proc/self/status", used)), by, limit);
}

}  // namespace

int64_t CgroupMemory(absl::string_view membership, const std::string& mount, int64_t* available) {
  int64_t min = -1;
  *available = -1;
  ForEachCgroup(membership, mount, "memory", [&](const std::string& group, bool v2) {
    const int64_t limit = NumberIn(group + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit < 0) return;
    const int64_t used = NumberIn(group + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    const int64_t left = std::max<int64_t>(0, limit - std::max<int64_t>(0, used));
    min = min < 0 ? limit : std::min(min, limit);
    *available = *available < 0 ? left : std::min(*available, left);
  });
  return min;
}

MemoryLimit ProcessMemoryLimit() {
  constexpr int64_t kUnknown = int64_t{8} << 30;
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  MemoryLimit limit;
  limit.bytes = pages > 0 && page > 0 ? pages * page : kUnknown;
  limit.by = "this machine's memory";
  const int64_t free = ReadKilobytes("/proc/meminfo", "MemAvailable:");
  limit.available = free >= 0 ? free : limit.bytes;
  int64_t left;
  const int64_t max = CgroupMemory(ReadSystemFile("/proc/self/cgroup"), "/sys/fs/cgroup", &left);
  if (max >= 0) Lower(max, left, "the limit of its control group", &limit);
  LowerToResource(RLIMIT_AS, "VmSize:", "ulimit -v", &limit);
  LowerToResource(RLIMIT_DATA, "VmData:", "ulimit -d", &limit);
  return limit;
}

int64_t AddressSpaceLeft() {
  const int64_t bytes = ResourceLimit(RLIMIT_AS);
  if (bytes < 0) return std::numeric_limits<int64_t>::max();
  const int64_t used = std::max<int64_t>(0, ReadKilobytes("/proc/self/status", "VmSize:"));
  return std::max<int64_t>(0, bytes - used);
}

bool HasMemoryFor(int64_t bytes) {
  void* const map = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return false;
  munmap(map, static_cast<size_t>(bytes));
  return true;
}

std::string MemoryLimitText() {
  const MemoryLimit limit = ProcessMemoryLimit();
  constexpr double kMiB = 1 << 20;
  return absl::StrFormat("this process may use %.0f MiB (%s)",
                         static_cast<double>(limit.bytes) / kMiB, limit.by);
}

}  // namespace plumb
