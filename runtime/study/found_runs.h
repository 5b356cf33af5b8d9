// SPDX-License-Identifier: Apache-2.0
// FoundRuns: runs that were trained before, by any commands, put in order as if one study had
// trained them. Their model and recipe say which model and which setting each belongs to.
#ifndef PLUMB_RUNTIME_STUDY_FOUND_RUNS_H_
#define PLUMB_RUNTIME_STUDY_FOUND_RUNS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/study/plan.h"
#include "runtime/study/run_record.h"

namespace plumb {

struct FoundRuns {
  // Its runs are those of every model, setting and seed; some may not exist. Its study has no
  // files: it cannot be trained.
  StudyPlan plan;
  std::vector<RunRecord> records;  // parallel to plan.runs
};

// Reads the runs of `paths`: directories of runs, and of studies with all their runs. Runs belong
// to the same model if they differ in its sizes only; sizes and fields of the recipe that differ
// are settings. Errors: kInvalidArgument for a path that is neither, two different runs of a model
// with the same setting and seed, and models or recipes that cannot be read.
absl::StatusOr<FoundRuns> FindRuns(const std::vector<std::string>& paths, HostRuntime* runtime);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_FOUND_RUNS_H_
