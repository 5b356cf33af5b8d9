// How many processors this process has. Pure reads of the system; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_PROCESSORS_H_
#define PLUMB_RUNTIME_BASE_PROCESSORS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// What says how many processors there are; 0 where something does not.
struct ProcessorCounts {
  int machine = 0;   // online
  int affinity = 0;  // that the calling thread may run on (sched_getaffinity)
  int quota = 0;     // that the CPU quota of the control groups amounts to, rounded up
};
ProcessorCounts CountProcessors();

// Those that the calling thread may run on (sched_getaffinity), or as many as the CPU quota of its
// control groups amounts to, rounded up, if that is less. At least 1.
int AvailableProcessors();

// The quota of the control groups in `membership` (the text of /proc/self/cgroup) and of all above
// them, in processors rounded up; 0 if there is none. Hierarchies of version 1 and 2 are looked for
// under `mount` (/sys/fs/cgroup).
int CgroupProcessors(absl::string_view membership, const std::string& mount);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PROCESSORS_H_
