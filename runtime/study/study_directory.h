// SPDX-License-Identifier: Apache-2.0
// Directory of a study: the lock on it, the check that its runs belong to the study, and copies of
// runs.
#ifndef PLUMB_RUNTIME_STUDY_STUDY_DIRECTORY_H_
#define PLUMB_RUNTIME_STUDY_STUDY_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/file.h"
#include "runtime/study/plan.h"
#include "runtime/study/study.h"

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

// Claims plan.out for the plan: compares the runs that are in it with the plan, and writes
// study.pbtxt. Every run that is there must be one of the plan's, with the inputs of the plan
// (RunIdentity). `overwrite` deletes runs of the plan that had other inputs; their names are
// returned. Errors: kInvalidArgument, before anything is written, for a directory with other runs,
// with a file that a study would overwrite, or, unless `overwrite`, with runs of other inputs; the
// message says what changed.
absl::StatusOr<std::vector<std::string>> ClaimDirectory(const StudyPlan& plan, bool overwrite);

// Fails with kInvalidArgument if a run that has begun had other inputs than the plan has, which can
// only be if they changed while the study was trained.
absl::Status CheckInputs(const PlanRun& run);

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
  // Deletes what was received.
  absl::Status Discard();

 private:
  explicit IncomingRun(std::string directory);
  std::string directory_, gathering_;
};

// Removes a run at once, by a rename: a process that is killed leaves the whole run or none of it.
absl::Status RemoveRun(const std::string& directory);

// Removes partly received or removed runs in `out`/runs that a killed process left.
absl::Status RemoveIncomingRuns(const std::string& out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STUDY_DIRECTORY_H_
