// The directory of a study: who may write into it, and which study it belongs to.
#ifndef PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_
#define PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

// Keeps other processes from writing into a study's directory while it lives. Move-only.
class StudyLock {
 public:
  // Makes the directory if need be. kAlreadyExists when another process holds the lock.
  static absl::StatusOr<StudyLock> Acquire(const std::string& directory);
  StudyLock(StudyLock&&) = default;
  StudyLock& operator=(StudyLock&&) = delete;

 private:
  explicit StudyLock(std::shared_ptr<void> lock) : lock_(std::move(lock)) {}
  std::shared_ptr<void> lock_;
};

// Writes `text` to `directory`/study.pbtxt, or finds it there. kInvalidArgument when the directory
// holds another study (the message lists the differences), or a file that a study would overwrite.
absl::Status ClaimDirectory(const std::string& directory, const std::string& text);

// kInvalidArgument, with the differences, when `begun`, the content of `path`, is not `text`.
absl::Status CheckSameStudy(const std::string& path, const std::string& begun,
                            const std::string& text, const std::string& advice);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_STUDY_DIRECTORY_H_
