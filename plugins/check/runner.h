// SPDX-License-Identifier: Apache-2.0
// Runs the checks on a file: which ones, in which order, in which processes, and what follows for
// the rest when the file cannot be loaded. This process never loads it (but see in_process). One
// thread.
#ifndef PLUMB_PLUGINS_CHECK_RUNNER_H_
#define PLUMB_PLUGINS_CHECK_RUNNER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plugins/check/check.h"

namespace plumb::check {

struct RunnerOptions {
  std::string path;
  uint64_t seed = 0;
  int level = 3;                  // runs checks up to it
  std::vector<std::string> only;  // ids; when not empty, these checks of whatever level
  bool in_process = false;        // for a debugger: here, one after the other
  int parallel = 1;               // processes at once
  double timeout_seconds = 10;    // for one call of the plugin
  double seconds = 20;            // for all exploring checks of a norm together
  std::string point;              // the only point that they try, or ""
  bool fail_fast = false;         // skip what has not ended when a check fails
  // Told after every check; may be empty.
  std::function<void(size_t done, size_t total, const std::string& what)> progress;
};

// One check of one norm, or of the file.
struct CheckResult {
  const Check* check = nullptr;
  std::string norm;  // its id; "" for checks of the file
  Verdict verdict = Verdict::kPass;
  std::vector<Finding> findings;
  double seconds = 0;
};

struct FileResult {
  std::string path;
  std::string load_problem;          // why the file cannot be loaded, "" if it can
  std::vector<std::string> norms;    // ids, in the file's order
  std::vector<CheckResult> results;  // the file's, then each norm's, in the order of AllChecks()
};

// Error: there is no such file, or this system gives no processes.
absl::StatusOr<FileResult> RunChecks(const RunnerOptions& options);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RUNNER_H_
