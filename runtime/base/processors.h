// How many processors this process has. Pure reads of the system; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_PROCESSORS_H_
#define PLUMB_RUNTIME_BASE_PROCESSORS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Those that the calling thread may run on (sched_getaffinity), or as many as the CPU quota of its
// control groups amounts to, rounded up, if that is less. At least 1.
int AvailableProcessors();

// The quota of the control groups in `membership` (the text of /proc/self/cgroup) and of all above
// them, in processors rounded up; 0 if there is none. Hierarchies of version 1 and 2 are looked for
// under `mount` (/sys/fs/cgroup).
int CgroupProcessors(absl::string_view membership, const std::string& mount);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PROCESSORS_H_
