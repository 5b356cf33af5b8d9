// SPDX-License-Identifier: Apache-2.0
// Processes of the checker, one for each task. The plugin's code runs only there, never in the
// parent, so it may crash, hang, print or start processes. For one thread.
#ifndef PLUMB_PLUGINS_CHECK_PROCESS_H_
#define PLUMB_PLUGINS_CHECK_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plugins/check/check.h"

namespace plumb::check {

// Norm in the file.
struct ListedNorm {
  uint32_t index = 0;
  std::string id;       // "?" if it has none
  std::string problem;  // reason why the norm cannot be used here, or ""
};

// Work of one process: one check, or listing the norms if `check` is null.
struct Task {
  const Check* check = nullptr;
  uint32_t norm_index = 0;
  Subject subject;  // the process sets `norm`
};

struct TaskResult {
  std::vector<Finding> findings;
  std::vector<ListedNorm> norms;
  std::string point;  // last point that it tried, if the process did not end normally
  double seconds = 0;
};

// Runs the task in this process.
TaskResult Perform(const Task& task);

struct ProcessOptions {
  int parallel = 1;
  // Time after which a call of the plugin counts as hung; a process may last 30 times as long.
  double timeout_seconds = 10;
};

// Runs every task in its own process and calls `done` with its index when it ends. Once `done`
// returns false, kills the running processes and starts no more. Errors: the system has no more
// processes or memory.
absl::Status RunTasks(const std::vector<Task>& tasks, const ProcessOptions& options,
                      const std::function<bool(size_t, TaskResult)>& done);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_H_
