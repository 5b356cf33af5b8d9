// Runs this program again, many times at once, each with the arguments of one job, and picks up
// what the children leave: findings, prints, and how they ended. A child may crash, hang, print or
// start processes of its own; none of it reaches this process. One thread.
#ifndef PLUMB_PLUGINS_CHECK_SUBPROCESS_H_
#define PLUMB_PLUGINS_CHECK_SUBPROCESS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumb::check {

// How one child ended.
struct Ended {
  std::string findings;  // all that it wrote to its findings descriptor
  std::string printed;   // what it printed, the first part
  // Why it did not end by itself with exit status 0: "SIGSEGV in forward f32 dim=17 rows 3..7",
  // "does not return from create dim=8: stopped after 10 s", "exit status 3 during forward ...".
  std::string death;
  std::string last_call;  // the call in which it ended, "" if in none
  std::string point;      // the point that it last tried (points.h), "" if none
  bool stopped = false;   // because it hung
  double seconds = 0;
};

struct SubprocessOptions {
  int parallel = 1;
  // A call of the plugin that lasts longer is a hang; a child may last 30 times as long.
  double timeout_seconds = 10;
};

// The words with which the children are started: they come before a job's own arguments, and after
// them come the descriptors of findings and of the trace page.
inline constexpr char kChildWord[] = "--child";

// Runs every job to its end and calls `done` with its number as it ends. Once `done` returns false,
// what runs is killed and nothing more is started. Error: this system gives no processes, pipes or
// memory.
absl::Status RunChildren(const std::vector<std::vector<std::string>>& jobs,
                         const SubprocessOptions& options,
                         const std::function<bool(size_t, Ended)>& done);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_SUBPROCESS_H_
