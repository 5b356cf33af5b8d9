// SPDX-License-Identifier: Apache-2.0
// Facts that the system states about this process and its machine: control groups and processors.
// The functions only read system state; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_PROCESS_H_
#define PLUMB_RUNTIME_BASE_PROCESS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Returns the name of the processor, "AMD EPYC 9R14"; "" if there is no /proc/cpuinfo.
std::string ProcessorName();

// Calls visit(directory, is version 2) for the control groups of `controller` in `membership` (the
// text of /proc/self/cgroup), from each group up to its root, under `mount` (/sys/fs/cgroup). In a
// container the deepest directories may have names of the outside and not exist.
void ForEachCgroup(absl::string_view membership, const std::string& mount,
                   absl::string_view controller,
                   absl::FunctionRef<void(const std::string& directory, bool v2)> visit);

// Returns the text of a file in which the system states facts, such as /proc/meminfo, or its words;
// empty if it cannot be read.
std::string ReadSystemFile(const std::string& path);
std::vector<std::string> ReadSystemWords(const std::string& path);

// Numbers of processors by source; 0 if a source states none.
struct ProcessorCounts {
  int machine = 0;   // online processors
  int affinity = 0;  // processors that the calling thread may run on (sched_getaffinity)
  int quota = 0;     // CPU quota of the control groups in processors, rounded up
};
ProcessorCounts CountProcessors();

// Returns the number of processors that the calling thread may run on (sched_getaffinity), or the
// CPU quota of its control groups, rounded up, if that is less. At least 1.
int AvailableProcessors();

// Returns the minimum CPU quota of the control groups in `membership` (the text of
// /proc/self/cgroup) and of their ancestors, in processors rounded up; 0 if there is none. `mount`
// (/sys/fs/cgroup) is where hierarchies of version 1 and 2 are mounted.
int CgroupProcessors(absl::string_view membership, const std::string& mount);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PROCESS_H_
