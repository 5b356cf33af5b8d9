// SPDX-License-Identifier: Apache-2.0
// Files and directories that are being written under a temporary name, which would remain if a
// signal ended the process. The list is global, since a signal handler can reach only globals. The
// library installs no handler: a program that handles signals calls RemoveUnfinishedPaths there.
#ifndef PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_
#define PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_

#include <string>

namespace plumb {

// Keeps a path on the list while it lives. Thread-compatible; the list is thread-safe.
class UnfinishedPath {
 public:
  // Adds `path`, a file or a directory. A path that is too long, or that finds the list full, is
  // not added and would remain after a signal.
  explicit UnfinishedPath(const std::string& path);
  ~UnfinishedPath();
  UnfinishedPath(const UnfinishedPath&) = delete;
  UnfinishedPath& operator=(const UnfinishedPath&) = delete;

 private:
  int slot_ = -1;
};

// Removes all paths that this process has on the list, directories with their content. Does nothing
// in a child of fork(), since the files belong to its parent. Async-signal-safe, for a handler that
// ends the process. Threads that are still writing find their files removed.
void RemoveUnfinishedPaths();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_UNFINISHED_PATHS_H_
