// SPDX-License-Identifier: Apache-2.0
// How much memory this process may use. Pure reads of the system; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_MEMORY_H_
#define PLUMB_RUNTIME_BASE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

struct MemoryLimit {
  int64_t bytes = 0;      // that this process may use in all
  int64_t available = 0;  // of these, what it can still take
  std::string by;         // "this machine's memory", "ulimit -v", "its control group"
};

// The least of the machine's memory, the limits of the control groups and of the address space
// (RLIMIT_AS), and RLIMIT_DATA.
MemoryLimit ProcessMemoryLimit();

// Each of those limits, in bytes; -1 where there is none, or the system does not say.
struct MemoryLimits {
  int64_t machine = -1;        // its memory
  int64_t cgroup = -1;         // the control group's
  int64_t address_space = -1;  // ulimit -v
  int64_t data = -1;           // ulimit -d
};
MemoryLimits ReadMemoryLimits();

// What RLIMIT_AS leaves this process of its address space; the largest number if there is no limit.
int64_t AddressSpaceLeft();

// The memory limit of the control groups in `membership` (the text of /proc/self/cgroup) and of all
// above them, in bytes, and in `*available` the least that any has left; -1 if there is none.
// Hierarchies of version 1 and 2 are looked for under `mount` (/sys/fs/cgroup).
int64_t CgroupMemory(absl::string_view membership, const std::string& mount, int64_t* available);

// Whether the system gives this process so much more now. Allocates nothing.
bool HasRoomFor(int64_t bytes);

// "this process may use 1.0 GiB of memory (ulimit -v)".
std::string MemoryLimitText();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_MEMORY_H_
