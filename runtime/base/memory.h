// SPDX-License-Identifier: Apache-2.0
// Memory that this process may use. The functions only read system state; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_MEMORY_H_
#define PLUMB_RUNTIME_BASE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

struct MemoryLimit {
  int64_t bytes = 0;      // total that this process may use
  int64_t available = 0;  // part of it that the process can still allocate
  std::string by;         // "this machine's memory", "ulimit -v", "the limit of its control group"
};

// Returns the minimum of the machine's memory, the control groups' limits, RLIMIT_AS (address
// space) and RLIMIT_DATA.
MemoryLimit ProcessMemoryLimit();

// Returns the unused part of the address space under RLIMIT_AS; INT64_MAX if there is no limit.
int64_t AddressSpaceLeft();

// Returns the minimum of the memory limits of the control groups in `membership` (the text of
// /proc/self/cgroup) and of their ancestors, in bytes, and sets `*available` to the minimum that
// any of them has left; both are -1 if there is no limit. `mount` (/sys/fs/cgroup) is where
// hierarchies of version 1 and 2 are mounted.
int64_t CgroupMemory(absl::string_view membership, const std::string& mount, int64_t* available);

// Returns true if the system would let this process map `bytes` more now. Allocates nothing.
bool HasMemoryFor(int64_t bytes);

// Returns "this process may use 1024 MiB (ulimit -v)".
std::string MemoryLimitText();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_MEMORY_H_
