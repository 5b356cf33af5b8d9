// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/checkpoint/staged_directory.h"

#include <unistd.h>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {

absl::Status StagedDirectory::CheckFree(const std::string& path) {
  if (!FileExists(path)) return absl::OkStatus();
  if (!IsDirectory(path)) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": is a file; choose another --out"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  if (names.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path, ": is not empty; choose another --out, or remove it"));
}

absl::StatusOr<std::unique_ptr<StagedDirectory>> StagedDirectory::Create(const std::string& path) {
  PLUMB_RETURN_IF_ERROR(CheckFree(path));
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  std::string staged = absl::StrCat(plain, ".tmp-", getpid());
  PLUMB_RETURN_IF_ERROR(RemoveTree(staged));
  auto directory = std::unique_ptr<StagedDirectory>(new StagedDirectory(plain, std::move(staged)));
  PLUMB_RETURN_IF_ERROR(MakeDirectories(directory->staged_));
  return directory;
}

StagedDirectory::StagedDirectory(std::string path, std::string staged)
    : path_(std::move(path)), staged_(std::move(staged)), unfinished_(staged_) {}

StagedDirectory::~StagedDirectory() {
  if (!committed_) RemoveTree(staged_).IgnoreError();
}

absl::Status StagedDirectory::Commit() {
  PLUMB_RETURN_IF_ERROR(SyncDirectory(staged_));
  std::error_code error;
  std::filesystem::rename(staged_, path_, error);  // also replaces an empty directory
  if (error) {
    return absl::UnavailableError(absl::StrCat(path_, ": cannot be created: ", error.message()));
  }
  committed_ = true;
  return SyncDirectory(ParentDirectory(path_));
}

}  // namespace plumb
