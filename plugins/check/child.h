// The child process of one check: loads the plugin, runs the check, writes its findings. The
// plugin's code runs here and never in the parent. One thread, but for those of checks.
#ifndef PLUMB_PLUGINS_CHECK_CHILD_H_
#define PLUMB_PLUGINS_CHECK_CHILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plugins/check/check.h"

namespace plumb::check {

// A norm of the file.
struct ListedNorm {
  uint32_t index = 0;
  std::string id;           // "?" if it has none
  std::string problem;      // why nothing can be done with it, "" if something can
  std::string unavailable;  // why this machine cannot run it
};

// What one process is to do: one check, or, with `check` null, list the norms.
struct Task {
  const Check* check = nullptr;
  uint32_t norm_index = 0;  // Scope::kNorm
  std::string path;
  uint64_t seed = 0;
  double seconds = 1;  // Subject::seconds
  std::string point;   // Subject::point
  bool shrinks = false;
};

// What it found.
struct TaskResult {
  std::vector<Finding> findings;
  std::vector<ListedNorm> norms;
};

// Does the task in this process.
TaskResult Perform(const Task& task);

// The words that follow kChildWord on the command line of a process for `task`.
std::vector<std::string> ChildArguments(const Task& task);
// The program of that process; `words` are those and the two descriptors. Returns its exit code.
int ChildMain(const std::vector<std::string>& words);
// The findings that it wrote. Error: they stop in the middle.
absl::StatusOr<TaskResult> ParseTaskResult(const std::string& lines);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CHILD_H_
