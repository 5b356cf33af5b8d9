// SPDX-License-Identifier: Apache-2.0
// Files and directories that are being written under a temporary name: what a process that is ended
// by a signal would leave behind. A list of the process, since a signal handler sees nothing but
// globals. The library installs no handler: a program whose own handlers end it removes them there.
#ifndef PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_
#define PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_

#include <string>

namespace plumb {

// Keeps a path on the list as long as it lives. Thread-compatible; the list is thread-safe.
class UnfinishedPath {
 public:
  // Adds `path`, a file or a directory. A path that is longer than a path may be, or finds the list
  // full, is not added: then it stays behind as if there were no list.
  explicit UnfinishedPath(const std::string& path);
  ~UnfinishedPath();
  UnfinishedPath(const UnfinishedPath&) = delete;
  UnfinishedPath& operator=(const UnfinishedPath&) = delete;

 private:
  int slot_ = -1;
};

// Removes all that this process has on the list, directories with their content. Does nothing in a
// child of fork(), to which the files do not belong. Async-signal-safe: for a handler that ends the
// process. The threads that write may still run, and find their files gone.
void RemoveUnfinishedPaths();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_
