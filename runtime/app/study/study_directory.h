// SPDX-License-Identifier: Apache-2.0
// Directory of a study: the lock on it, the check that its runs belong to the study, and copies of
// runs.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/file.h"

namespace plumb {

// Lock that keeps other processes from writing into a study's directory while it lives. Move-only.
class StudyLock {
 public:
  // Creates the directory if necessary. Errors: kAlreadyExists if another process holds the lock.
  static absl::StatusOr<StudyLock> Acquire(const std::string& directory);
  StudyLock(StudyLock&&) = default;
  StudyLock& operator=(StudyLock&&) = delete;

 private:
  explicit StudyLock(DirectoryLock lock) : lock_(std::move(lock)) {}
  DirectoryLock lock_;
};

// Writes `text` to `directory`/study.pbtxt. If the file exists, `text` may be the same study or add
// models, seeds or values of the grid to it. Errors: kInvalidArgument if the directory holds
// another study (the message lists the differences), or a file that a study would overwrite.
absl::Status ClaimDirectory(const std::string& directory, const std::string& text);

// Returns the regular files below `directory` as relative paths, sorted.
absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& directory);

// Run that is received file by file and then replaces the old one at once. Thread-compatible.
class IncomingRun {
 public:
  // Starts to receive a run; removes what an earlier attempt left.
  static absl::StatusOr<IncomingRun> Begin(const std::string& directory);

  // Writes one file. Errors: kInvalidArgument if `path` leads out of the run's directory.
  absl::Status Add(const std::string& path, absl::string_view content);
  // Replaces the run's directory by what was received.
  absl::Status Finish();

 private:
  explicit IncomingRun(std::string directory);
  std::string directory_, gathering_;
};

absl::Status CopyRun(const std::string& from, const std::string& to);

// Removes partly received runs in `out`/runs that a killed process left.
absl::Status RemoveIncomingRuns(const std::string& out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_
