// The files of one run's directory: listed, compared, copied. What tells times is not compared:
// the seconds in metrics.jsonl, and TensorBoard's files. Stateless.
#ifndef PLUMB_CLI_COMPARE_RUN_FILES_H_
#define PLUMB_CLI_COMPARE_RUN_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

// The sorted paths of its regular files, relative to it: "checkpoints/step-000030/state.json". What
// writers left when they were killed is none.
absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& run);

// "", or the first of the two runs' files that differs; one that only one of them has differs.
absl::StatusOr<std::string> FirstDifference(const std::string& a, const std::string& b);

// Copies a run that has ended; `to` is not there, or not whole and replaced. It is there when all
// of it is: until then it has another name beside.
absl::Status CopyRun(const std::string& from, const std::string& to);

// The name under which CopyRun, and what receives a run, writes it until it is whole.
std::string IncomingName(const std::string& run);
// Gives it its own.
absl::Status MoveIntoPlace(const std::string& run);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_FILES_H_
