// SPDX-License-Identifier: Apache-2.0
// Facts that the system states about this process and its machine: for reports, and how many
// processors there are. Pure reads; thread-safe. A fact that the system does not state, as in a
// container without /proc, is an empty text, or -1.
#ifndef PLUMB_RUNTIME_BASE_PROCESS_H_
#define PLUMB_RUNTIME_BASE_PROCESS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace plumb {

std::string ProcessorName();     // "AMD EPYC 9R14"
std::string LibcVersion();       // "glibc 2.36"
std::string HugePages();         // of memory that does not ask: "always", "madvise", "never"
std::string CurrentDirectory();  // absolute
int64_t StackLimit();            // bytes of a thread's stack (ulimit -s); INT64_MAX: unlimited

// The files of the shared objects that are mapped, the program's own left out.
std::vector<std::string> MappedLibraries();

// The floating-point mode of the calling thread.
struct FloatingPoint {
  std::string rounding;             // "nearest", "upward", "downward", "toward zero"
  bool flush_to_zero = false;       // denormal results
  bool denormals_are_zero = false;  // operands
};
FloatingPoint CallersFloatingPoint();

// Names and values of the environment, in its order.
std::vector<std::pair<std::string, std::string>> Environment();

// Calls visit(directory, is version 2) for the groups of `controller` in `membership` (the text of
// /proc/self/cgroup), from each up to its root, under `mount` (/sys/fs/cgroup). In a container the
// first may be names of the outside, and not be there.
void ForEachCgroup(absl::string_view membership, const std::string& mount,
                   absl::string_view controller,
                   absl::FunctionRef<void(const std::string& directory, bool v2)> visit);

// Returns the words of a short file; none if it cannot be read.
std::vector<std::string> ShortFileWords(const std::string& path);

// Numbers of processors by their source; 0 where a source has none.
struct ProcessorCounts {
  int machine = 0;   // online
  int affinity = 0;  // that the calling thread may run on (sched_getaffinity)
  int quota = 0;     // that the CPU quota of the control groups amounts to, rounded up
};
ProcessorCounts CountProcessors();

// Returns how many processors the calling thread may run on (sched_getaffinity), or, if that is
// less, what the CPU quota of its control groups amounts to, rounded up. At least 1.
int AvailableProcessors();

// Returns the quota of the control groups in `membership` (the text of /proc/self/cgroup) and of
// all above them, in processors rounded up; 0 if there is none. Hierarchies of version 1 and 2 are
// looked for under `mount` (/sys/fs/cgroup).
int CgroupProcessors(absl::string_view membership, const std::string& mount);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PROCESS_H_
