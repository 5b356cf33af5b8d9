// SPDX-License-Identifier: Apache-2.0
// A temporary directory for a test, deleted with everything in it.
#ifndef PLUMB_TESTS_SESSION_SCRATCH_DIR_H_
#define PLUMB_TESTS_SESSION_SCRATCH_DIR_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"
#include "runtime/base/file.h"

namespace plumb {

class ScratchDir {
 public:
  ScratchDir() : path_(JoinPath(::testing::TempDir(), "plumb-XXXXXX")) {
    if (mkdtemp(&path_[0]) == nullptr) ADD_FAILURE() << "cannot create " << path_;
  }
  ~ScratchDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return JoinPath(path_, name); }
  // Writes a file and returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const {
    const std::string path = File(name);
    Overwrite(path, content);
    return path;
  }
  // Overwrites without a sync, because tests damage files by the hundred.
  static void Overwrite(const std::string& path, absl::string_view content) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    EXPECT_TRUE(file.flush().good()) << path;
  }

 private:
  std::string path_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_SCRATCH_DIR_H_
