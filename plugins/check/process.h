// SPDX-License-Identifier: Apache-2.0
// Processes of the checker, one for each task: a check of a norm. The plugin's code runs there and
// never in the parent, so it may crash, hang, print or start processes of its own. One thread.
#ifndef PLUMB_PLUGINS_CHECK_PROCESS_H_
#define PLUMB_PLUGINS_CHECK_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plugins/check/check.h"

namespace plumb::check {

// A norm of the file.
struct ListedNorm {
  uint32_t index = 0;
  std::string id;           // "?" if it has none
  std::string problem;      // why nothing can be done with it, "" if something can
  std::string unavailable;  // why this machine cannot run it
};

// Work of one process: one check, or, with `check` null, to list the norms.
struct Task {
  const Check* check = nullptr;
  uint32_t norm_index = 0;  // Scope::kNorm
  Subject subject;          // `entry` and `norm` are found by the process
};

struct TaskResult {
  std::vector<Finding> findings;
  std::vector<ListedNorm> norms;
  // True if the process did not end by itself; the only finding says why.
  bool died = false;
  bool hung = false;  // and was killed
  std::string point;  // that it last tried (points.h), "" if none
  double seconds = 0;
};

// Does the task in this process.
TaskResult Perform(const Task& task);

struct ProcessOptions {
  int parallel = 1;
  // A call of the plugin that lasts longer is a hang; a process may last 30 times as long.
  double timeout_seconds = 10;
};

// Runs every task in a process of its own and calls `done` with its number as it ends. Once `done`
// returns false, what runs is killed and nothing more is started. Error: this system gives no
// processes, pipes or memory.
absl::Status RunTasks(const std::vector<Task>& tasks, const ProcessOptions& options,
                      const std::function<bool(size_t, TaskResult)>& done);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PROCESS_H_
