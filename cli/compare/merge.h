// MergeStudies: the runs that shards of a study have trained, brought into one directory.
#ifndef PLUMB_CLI_COMPARE_MERGE_H_
#define PLUMB_CLI_COMPARE_MERGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"

namespace plumb::cli {

// The study.pbtxt of directories that plumb compare has written, which is the same in all of them.
// kInvalidArgument otherwise: a directory that has none, or two that differ and in what.
absl::StatusOr<std::string> CommonStudyText(const std::vector<std::string>& directories);

// Copies the runs that have ended from `directories` into plan.out; what is there already stays.
// Errors, before anything is copied: a run that two directories have with different results
// (kFailedPrecondition), one whose files are damaged (kDataLoss), runs that nobody has
// (kFailedPrecondition, with their names), a directory in which plumb is at work (kAlreadyExists).
absl::Status MergeStudies(const Plan& plan, const std::vector<std::string>& directories);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_MERGE_H_
