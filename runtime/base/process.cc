// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/process.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace plumb {

namespace {

// Lowers `*processors` to quota / period (both in microseconds); -1 and "max" mean no limit.
void AddQuota(absl::string_view quota, absl::string_view period, int* processors) {
  int64_t q, p;
  if (!absl::SimpleAtoi(quota, &q) || !absl::SimpleAtoi(period, &p) || q <= 0 || p <= 0) return;
  const int here = static_cast<int>(std::min<int64_t>(1 << 20, (q - 1) / p + 1));
  *processors = *processors == 0 ? here : std::min(*processors, here);
}

}  // namespace

std::string ProcessorName() {
  const std::string text = ReadSystemFile("/proc/cpuinfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

int CgroupProcessors(absl::string_view membership, const std::string& mount) {
  int processors = 0;
  ForEachCgroup(membership, mount, "cpu", [&](const std::string& group, bool v2) {
    if (v2) {
      const std::vector<std::string> max = ReadSystemWords(absl::StrCat(group, "/cpu.max"));
      if (max.size() == 2) AddQuota(max[0], max[1], &processors);
    } else {
      const std::vector<std::string> quota = ReadSystemWords(group + "/cpu.cfs_quota_us");
      const std::vector<std::string> period = ReadSystemWords(group + "/cpu.cfs_period_us");
      if (quota.size() == 1 && period.size() == 1) AddQuota(quota[0], period[0], &processors);
    }
  });
  return processors;
}

ProcessorCounts CountProcessors() {
  ProcessorCounts counts;
  counts.machine = static_cast<int>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  // Fails on machines with more than 1024 processors; then `machine` is used.
  if (sched_getaffinity(0, sizeof(set), &set) == 0) counts.affinity = CPU_COUNT(&set);
  counts.quota = CgroupProcessors(ReadSystemFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  return counts;
}

int AvailableProcessors() {
  const ProcessorCounts counts = CountProcessors();
  int processors = counts.affinity > 0 ? counts.affinity : counts.machine;
  if (counts.quota > 0) processors = std::min(processors, counts.quota);
  return std::max(1, processors);
}

void ForEachCgroup(absl::string_view membership, const std::string& mount,
                   absl::string_view controller,
                   absl::FunctionRef<void(const std::string& directory, bool v2)> visit) {
  // Each line is "hierarchy:controllers:/path"; version 2 has no controllers.
  for (const absl::string_view line : absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (field.size() != 3) continue;
    const bool v2 = field[1].empty();
    bool wanted = v2;
    for (const absl::string_view c : absl::StrSplit(field[1], ',')) {
      wanted = wanted || c == controller;
    }
    if (!wanted) continue;
    const std::string root = v2 ? mount : absl::StrCat(mount, "/", controller);
    for (std::string path(absl::StripSuffix(field[2], "/"));;) {
      visit(absl::StrCat(root, path), v2);
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
}

std::string ReadSystemFile(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char buffer[1 << 12];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, n);
  std::fclose(file);
  return text;
}

std::vector<std::string> ReadSystemWords(const std::string& path) {
  return absl::StrSplit(ReadSystemFile(path), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

}  // namespace plumb
