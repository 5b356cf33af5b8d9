// SPDX-License-Identifier: Apache-2.0
// Runner of the checks on a file: selects them, assigns processes, decides what follows if the file
// cannot be loaded, and reports each cause once. This process never loads it (except with
// in_process). For one thread.
#ifndef PLUMB_PLUGINS_CHECK_RUNNER_H_
#define PLUMB_PLUGINS_CHECK_RUNNER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plugins/check/check.h"

namespace plumb::check {

inline constexpr double kTimeout = 10;  // default seconds for a call of the plugin

struct RunnerOptions {
  std::string path;
  uint64_t seed = 0;
  int level = 3;                  // highest level of checks to run
  std::vector<std::string> only;  // ids; if not empty, exactly these checks, whatever their level
  bool in_process = false;        // runs everything sequentially in this process, for a debugger
  int parallel = 1;               // number of concurrent processes
  double timeout_seconds = kTimeout;  // per call of the plugin
  double seconds = 20;                // for all exploring checks of a norm together
  std::string point;                  // the only point that they try, or ""
  std::string norm;                   // the only norm of the file to check, or ""
  bool fail_fast = false;             // skips unfinished checks once one fails
  // Called after every check; may be empty.
  std::function<void(size_t done, size_t total, const std::string& what)> progress;
};

// Result of one check of one norm, or of the file.
struct CheckResult {
  const Check* check = nullptr;
  std::string norm;  // id of the norm; "" for checks of the file
  Verdict verdict = Verdict::kPass;
  std::vector<Finding> findings;
  double seconds = 0;
};

struct FileResult {
  std::string path;
  std::string load_problem;          // reason why the file cannot be loaded, or ""
  std::vector<std::string> norms;    // ids, in the file's order
  std::vector<CheckResult> results;  // the file's, then each norm's, in the order of AllChecks()
};

// Norm in a file.
struct ListedNorm {
  uint32_t index = 0;
  std::string id;       // "?" if it has none
  std::string problem;  // reason why the norm cannot be used here, or ""
};
// Lists the norms of a file in a process of its own. Sets *problem if that fails. Errors: the
// system has no more processes.
absl::StatusOr<std::vector<ListedNorm>> ListNorms(const std::string& path, std::string* problem);
// Loads the file into this process, and returns the table of a norm. Ends the check if that fails.
const plumb_norm_plugin& GetNorm(const std::string& path, const ListedNorm& norm);

// Runs the checks. Errors: the file does not exist, or the system has no more processes.
absl::StatusOr<FileResult> RunChecks(const RunnerOptions& options);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RUNNER_H_
