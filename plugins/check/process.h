// SPDX-License-Identifier: Apache-2.0
// Processes of the checker, one for each task. The plugin's code runs only there, never in the
// parent, so it may crash, hang, print or start processes. For one thread.
#ifndef PLUMB_PLUGINS_CHECK_PROCESS_H_
#define PLUMB_PLUGINS_CHECK_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plugins/check/check.h"

namespace plumb::check {

// Work of one process.
using Task = std::function<void(Report*)>;

struct TaskResult {
  std::vector<Finding> findings;
  std::string point;  // last point that it tried, if the process did not end normally
  double seconds = 0;
};

// Runs the task in this process.
TaskResult Perform(const Task& task);

// Runs every task in its own process and calls `done` with its index when it ends. Once `done`
// returns false, kills the running processes and starts no more. A call of the plugin counts as
// hung after `timeout` seconds, and a process may last 30 times as long. Errors: the system has no
// more processes or memory.
absl::Status RunTasks(const std::vector<Task>& tasks, int parallel, double timeout,
                      const std::function<bool(size_t, TaskResult)>& done);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_H_
