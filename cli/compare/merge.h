// plumb compare --merge: the runs of shards, gathered in one directory.
#ifndef PLUMB_CLI_COMPARE_MERGE_H_
#define PLUMB_CLI_COMPARE_MERGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "runtime/tools/study.h"

namespace plumb::cli {

// The study that the first of the directories belongs to.
absl::StatusOr<Study> StudyOfDirectory(const std::string& directory);

// Copies every run of the plan out of the directory that has it into the plan's, but those that are
// there. Errors, before anything is written: a directory of no study or of another
// (kInvalidArgument), or at which somebody is at work (kAlreadyExists); a run that two have with
// unequal results, files that are damaged (kDataLoss); runs that nobody has finished, by name
// (kNotFound).
absl::Status MergeRuns(const Plan& plan, const std::vector<std::string>& directories);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_MERGE_H_
