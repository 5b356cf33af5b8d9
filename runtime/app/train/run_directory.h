// SPDX-License-Identifier: Apache-2.0
// The files of a run directory beside its metrics and checkpoints, read and written as a whole.
// Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RUN_DIRECTORY_H_
#define PLUMB_RUNTIME_APP_TRAIN_RUN_DIRECTORY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/model.h"
#include "runtime/app/train/recipe.h"
#include "runtime/base/file.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

struct RunFiles {
  api::Spec model;
  Recipe recipe;
  absl::StatusOr<Tokenizer>
      tokenizer;              // an imported run's, which may have none, is read or an error
  std::string initial_state;  // run.json: a JSON object
  SpecialTokens special;      // the tokenizer's; those that files say by ids without one, too
};

std::string RunModelPath(const std::string& run);
std::string RunTrainPath(const std::string& run);
std::string RunJsonPath(const std::string& run);
std::string RunMetricsPath(const std::string& run);
std::string RunProbesPath(const std::string& run);
std::string RunIncidentsPath(const std::string& run);

// Keeps other processes from training into `run`, which is made if need be. kAlreadyExists if one
// does.
absl::StatusOr<DirectoryLock> LockRun(const std::string& run);

// Whether a new run may be written into `run`: a directory that is new, or empty, or has no file of
// the names that a run writes, unless a run left them that was stopped while it began.
// kAlreadyExists otherwise; kInvalidArgument for the root of the file system.
absl::Status CheckMayBegin(const std::string& run);
// Removes what writers of the files of `run` left when their process was killed. REQUIRES: LockRun.
absl::Status RemoveRunTemporaries(const std::string& run);

// Whether `run` holds a run.
bool IsRunDirectory(const std::string& run);
// Why it does not: kPermissionDenied where that cannot be seen, else kNotFound with this text.
absl::Status NoRun(const std::string& run, absl::string_view text);

// model.pbtxt is written last: with it the directory is a run.
absl::Status WriteRunFiles(const std::string& run, const std::string& model_text,
                           const Recipe& recipe, const Tokenizer& tokenizer,
                           const std::string& initial_state);
// Says in a run which tokens begin, end and pad a text.
absl::Status WriteSpecialTokens(const std::string& run, const Tokenizer& tokenizer);
// `train_overrides` are applied to the run's train.pbtxt, of an imported one to the defaults.
// kNotFound if there is no run.
absl::StatusOr<RunFiles> ReadRunFiles(const std::string& run, const Overrides& train_overrides);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RUN_DIRECTORY_H_
