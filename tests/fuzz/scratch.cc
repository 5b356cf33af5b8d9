// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/scratch.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"

namespace plumb {
namespace {

std::string* directory_at_exit = nullptr;

void RemoveAtExit() {
  std::error_code ignored;
  std::filesystem::remove_all(*directory_at_exit, ignored);
}

}  // namespace

FuzzScratch::FuzzScratch(absl::string_view name)
    : path_(absl::StrCat(IsDirectory("/dev/shm") ? "/dev/shm" : "/tmp", "/plumb-fuzz-", name,
                         "-XXXXXX")) {
  PLUMB_CHECK(mkdtemp(path_.data()) != nullptr, "no scratch directory");
  if (directory_at_exit == nullptr) {
    directory_at_exit = new std::string(path_);
    PLUMB_CHECK(std::atexit(RemoveAtExit) == 0, "no place for an exit function");
  }
}

std::string FuzzScratch::Write(absl::string_view name, absl::string_view content) const {
  const std::string path = JoinPath(path_, name);
  std::error_code ignored;
  std::filesystem::create_directories(ParentDirectory(path), ignored);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  PLUMB_CHECK(file.flush().good(), "cannot write a scratch file");
  return path;
}

void FuzzScratch::Clear() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::remove_all(entry.path());
  }
}

}  // namespace plumb
