// SPDX-License-Identifier: Apache-2.0
// The directory of a study: who may write into it, and which study it belongs to.
#ifndef PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_
#define PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/compare/plan.h"
#include "runtime/app/study/study.h"
#include "runtime/base/file.h"

namespace plumb::cli {

// Keeps other processes from writing into a study's directory while it lives. Move-only.
class StudyLock {
 public:
  // Makes the directory if need be. kAlreadyExists when another process holds the lock.
  static absl::StatusOr<StudyLock> Acquire(const std::string& directory);
  StudyLock(StudyLock&&) = default;
  StudyLock& operator=(StudyLock&&) = delete;

 private:
  explicit StudyLock(DirectoryLock lock) : lock_(std::move(lock)) {}
  DirectoryLock lock_;
};

// Writes `text` to `directory`/study.pbtxt, or finds it there. kInvalidArgument when the directory
// holds another study (the message lists the differences), or a file that a study would overwrite.
absl::Status ClaimDirectory(const std::string& directory, const std::string& text);

// kInvalidArgument, with the differences, when `begun`, the content of `path`, is not `text`.
absl::Status CheckSameStudy(const std::string& path, const std::string& begun,
                            const std::string& text, const std::string& advice);

// The regular files below `directory`, as paths relative to it, sorted.
absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& directory);

// Thread-compatible.
class IncomingRun {
 public:
  // Begins to gather a run, and removes what was gathered for it before.
  static absl::StatusOr<IncomingRun> Begin(const std::string& directory);

  // kInvalidArgument for a path that leads out of the run.
  absl::Status Add(const std::string& path, absl::string_view content);
  // Takes the place of what the run had.
  absl::Status Finish();

 private:
  explicit IncomingRun(std::string directory);
  std::string directory_, gathering_;
};

absl::Status CopyRun(const std::string& from, const std::string& to);

// Removes what gathered in `out`/runs for a process that was ended.
absl::Status RemoveIncomingRuns(const std::string& out);

// The study that the first of the directories belongs to.
absl::StatusOr<Study> StudyOfDirectory(const std::string& directory);

// Copies every run of the plan out of the directory that has it into the plan's, but those that are
// there. Errors, before anything is written: a directory of no study or of another
// (kInvalidArgument), or at which somebody is at work (kAlreadyExists); a run that two have with
// unequal results, files that are damaged (kDataLoss); runs that nobody has finished, by name
// (kNotFound).
absl::Status MergeRuns(const Plan& plan, const std::vector<std::string>& directories);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_
