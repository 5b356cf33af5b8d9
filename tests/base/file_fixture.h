// SPDX-License-Identifier: Apache-2.0
// FileTest: a fixture with a directory of its own, which is removed at the end.
#ifndef PLUMB_TESTS_BASE_FILE_FIXTURE_H_
#define PLUMB_TESTS_BASE_FILE_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/file.h"

namespace plumb {

class FileTest : public ::testing::Test {
 protected:
  FileTest() : directory_(JoinPath(::testing::TempDir(), "plumb-file-XXXXXX")) {
    if (mkdtemp(&directory_[0]) == nullptr) ADD_FAILURE() << "cannot create " << directory_;
  }
  ~FileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  std::string In(absl::string_view name) const { return JoinPath(directory_, name); }
  std::vector<std::string> Names() const { return ListDirectory(directory_).value(); }

  std::string directory_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_BASE_FILE_FIXTURE_H_
