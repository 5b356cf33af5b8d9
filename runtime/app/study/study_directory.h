// SPDX-License-Identifier: Apache-2.0
// Directory of a study: the lock on it, the check that its runs belong to the study, and merging
// of runs.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/study/plan.h"
#include "runtime/app/study/study.h"
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

// Fails with kInvalidArgument and the differences unless the study `text` has every group of
// `begun`, the content of `path`, with the same hashes and the same fields for its runs.
absl::Status CheckContains(const std::string& path, const std::string& begun,
                           const std::string& text, const std::string& advice);

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

// Returns the study that the directories belong to: that of the first, with the seeds of all.
// Requires: `directories` is not empty. Errors: kInvalidArgument for a directory without a study.
absl::StatusOr<Study> StudyOfDirectories(const std::vector<std::string>& directories);

// Copies every run of the plan that plan.out does not have from the directory that has it. Errors,
// before anything is written: kInvalidArgument if a directory has no study or another one;
// kAlreadyExists if another process holds its lock; kDataLoss if files are damaged or two
// directories have different results of a run; kNotFound, with their names, for runs that nobody
// has finished.
absl::Status MergeRuns(const StudyPlan& plan, const std::vector<std::string>& directories);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_DIRECTORY_H_
