// The control groups of this process, version 1 and 2. Pure reads of files; thread-safe.
#ifndef PLUMB_RUNTIME_BASE_CGROUP_H_
#define PLUMB_RUNTIME_BASE_CGROUP_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Calls visit(directory, is version 2) for the groups of `controller` in `membership` (the text of
// /proc/self/cgroup), from each up to its root, under `mount` (/sys/fs/cgroup). In a container the
// first may be names of the outside, and not be there.
void ForEachCgroup(absl::string_view membership, const std::string& mount,
                   absl::string_view controller,
                   absl::FunctionRef<void(const std::string& directory, bool v2)> visit);

// The words of a short file; none if it cannot be read.
std::vector<std::string> ShortFileWords(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_CGROUP_H_
