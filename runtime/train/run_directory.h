// SPDX-License-Identifier: Apache-2.0
// Files of a run directory other than metrics and checkpoints, read and written together.
// Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_DIRECTORY_H_
#define PLUMB_RUNTIME_TRAIN_RUN_DIRECTORY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/client/recipe.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

struct RunFiles {
  api::Spec model;
  Recipe recipe;
  // An imported run may have no tokenizer; then this is the error.
  absl::StatusOr<Tokenizer> tokenizer;
  std::string initial_state;  // run.json, a JSON object
  SpecialTokens special;      // from the tokenizer or, without one, from files
};

std::string RunModelPath(const std::string& run);
std::string RunTrainPath(const std::string& run);
std::string RunJsonPath(const std::string& run);
std::string RunMetricsPath(const std::string& run);
std::string RunProbesPath(const std::string& run);
std::string RunIncidentsPath(const std::string& run);
std::string RunResultPath(const std::string& run);  // written by studies when the run has ended

// Locks `run`, created if needed, against other training processes. Errors: kAlreadyExists if one
// holds the lock.
absl::StatusOr<DirectoryLock> LockRun(const std::string& run);

// Checks that a new run may be written to `run`: the directory does not exist, or contains no file
// that a run writes, except those of a run that was stopped while it began. Errors: kAlreadyExists;
// kInvalidArgument for the root of the file system.
absl::Status CheckMayBegin(const std::string& run);
// Removes the temporary files that killed processes left next to the files of a run. Leaves
// unfinished directories in checkpoints/, which the next checkpoint removes. Errors: a failure to
// list the directory or to remove a file. Requires: the caller holds LockRun.
absl::Status RemoveRunTemporaries(const std::string& run);

// Returns true if `run` contains a run.
bool IsRunDirectory(const std::string& run);
// Returns the error for a directory without a run: kPermissionDenied if it cannot be read, else
// kNotFound with `text`.
absl::Status NoRun(const std::string& run, absl::string_view text);

// Writes the files of a new run. model.pbtxt is the last: it makes the directory a run.
absl::Status WriteRunFiles(const std::string& run, const std::string& model_text,
                           const Recipe& recipe, const Tokenizer& tokenizer,
                           const std::string& initial_state);
// Reads the files of a run. `train_overrides` are applied to its train.pbtxt, or for an imported
// run to the defaults. Errors: kNotFound if there is no run.
absl::StatusOr<RunFiles> ReadRunFiles(const std::string& run, const Overrides& train_overrides);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_DIRECTORY_H_
