#include "runtime/base/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/cgroup.h"
#include "runtime/base/file.h"

namespace plumb {
namespace {

// Microseconds of processor time in a period of microseconds; -1 and "max" stand for no limit.
void AddQuota(absl::string_view quota, absl::string_view period, int* processors) {
  int64_t q, p;
  if (!absl::SimpleAtoi(quota, &q) || !absl::SimpleAtoi(period, &p) || q <= 0 || p <= 0) return;
  const int here = static_cast<int>(std::min<int64_t>(1 << 20, (q - 1) / p + 1));
  *processors = *processors == 0 ? here : std::min(*processors, here);
}

}  // namespace

int CgroupProcessors(absl::string_view membership, const std::string& mount) {
  int processors = 0;
  ForEachCgroup(membership, mount, "cpu", [&](const std::string& group, bool v2) {
    if (v2) {
      const std::vector<std::string> max = ShortFileWords(absl::StrCat(group, "/cpu.max"));
      if (max.size() == 2) AddQuota(max[0], max[1], &processors);
    } else {
      const std::vector<std::string> quota = ShortFileWords(group + "/cpu.cfs_quota_us");
      const std::vector<std::string> period = ShortFileWords(group + "/cpu.cfs_period_us");
      if (quota.size() == 1 && period.size() == 1) AddQuota(quota[0], period[0], &processors);
    }
  });
  return processors;
}

ProcessorCounts CountProcessors() {
  ProcessorCounts counts;
  counts.machine = static_cast<int>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  // Fails on machines of more than 1024 processors; then all count.
  if (sched_getaffinity(0, sizeof(set), &set) == 0) counts.affinity = CPU_COUNT(&set);
  if (const absl::StatusOr<std::string> membership = ReadFile("/proc/self/cgroup", 1 << 16);
      membership.ok()) {
    counts.quota = CgroupProcessors(*membership, "/sys/fs/cgroup");
  }
  return counts;
}

int AvailableProcessors() {
  const ProcessorCounts counts = CountProcessors();
  int processors = counts.affinity > 0 ? counts.affinity : counts.machine;
  if (counts.quota > 0) processors = std::min(processors, counts.quota);
  return std::max(1, processors);
}

}  // namespace plumb
