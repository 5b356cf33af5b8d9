// SPDX-License-Identifier: Apache-2.0
// StagedDirectory: a directory that appears complete or not at all. It is filled under a temporary
// name next to it and renamed at the end. A signal that ends plumb removes it (unfinished_paths.h).
// Neither copyable nor movable; thread-compatible.
#ifndef PLUMB_RUNTIME_TRAIN_CHECKPOINT_STAGED_DIRECTORY_H_
#define PLUMB_RUNTIME_TRAIN_CHECKPOINT_STAGED_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unfinished_paths.h"

namespace plumb {

class StagedDirectory {
 public:
  // Errors: kAlreadyExists unless `path` does not exist or is an empty directory.
  static absl::Status CheckFree(const std::string& path);
  static absl::StatusOr<std::unique_ptr<StagedDirectory>> Create(const std::string& path);
  // Removes the temporary directory unless it was committed.
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  const std::string& path() const { return staged_; }  // the directory to write into
  absl::Status Commit();

 private:
  StagedDirectory(std::string path, std::string staged);

  std::string path_, staged_;
  UnfinishedPath unfinished_;
  bool committed_ = false;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_CHECKPOINT_STAGED_DIRECTORY_H_
