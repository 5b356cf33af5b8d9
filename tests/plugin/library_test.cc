// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/library.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace plumb {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LibraryTest : public ::testing::Test {
 protected:
  LibraryTest() {
    char name[] = "/tmp/plumb_library_test_XXXXXX";
    directory_ = fs::canonical(mkdtemp(name)).string();
  }
  ~LibraryTest() override { fs::remove_all(directory_); }

  std::string Install(const std::string& name, const std::string& as) {
    const std::string to = directory_ + "/" + as + ".so";
    fs::copy_file(std::string(PLUMB_MUTANT_DIR) + "/" + name + ".so", to);
    chmod(to.c_str(), 0755);
    return to;
  }
  static LibraryFile Inspect(const std::string& path) {
    LibraryFile file = InspectLibrary(path, FileOrigin::kNamed);
    EXPECT_TRUE(file.problem.ok()) << file.problem;
    return file;
  }
  static std::string GetVersion(const absl::StatusOr<plumb_norm_plugin_v1_fn>& entry) {
    return entry.ok() ? (*entry)(0)->version : entry.status().ToString();
  }

  std::string directory_;
};

// half has version 1.0.0 and half_again 2.0.0.
TEST_F(LibraryTest, LoadsTheFileThatWasInspected) {
  const std::string path = Install("half", "norm"), other = Install("half_again", "other");
  const LibraryFile file = Inspect(path);
  fs::rename(other, path);
  EXPECT_EQ(GetVersion(LoadLibrary(file)), "1.0.0");
  EXPECT_EQ(GetVersion(LoadLibrary(Inspect(path))), "2.0.0");
}

TEST_F(LibraryTest, RefusesAFileWrittenAfterInspection) {
  const std::string path = Install("half", "norm");
  const LibraryFile file = Inspect(path);
  std::ofstream(path, std::ios::app | std::ios::binary) << "more";
  EXPECT_THAT(GetVersion(LoadLibrary(file)), HasSubstr("norm.so: was replaced or changed"));
}

// The loader identifies a library by the name with which it was opened, and descriptors reuse the
// same few numbers.
TEST_F(LibraryTest, ReusedDescriptorsOpenTheirOwnLibrary) {
  const std::string first = Install("half", "first"), second = Install("half_again", "second");
  EXPECT_EQ(GetVersion(LoadLibrary(Inspect(first))), "1.0.0");
  // Some hosts close all descriptors.
  for (int fd = STDERR_FILENO + 1; fd < 64; ++fd) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    std::error_code error;
    if (fs::read_symlink(link, error).string().find(directory_) == 0) close(fd);
  }
  EXPECT_EQ(GetVersion(LoadLibrary(Inspect(second))), "2.0.0");
  EXPECT_EQ(GetVersion(LoadLibrary(Inspect(first))), "1.0.0");
}

TEST_F(LibraryTest, RepeatedLoadsLeakNoDescriptors) {
  const std::string path = Install("half", "norm");
  const auto lowest_free = [] {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
  };
  ASSERT_TRUE(LoadLibrary(Inspect(path)).ok());
  const int before = lowest_free();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(LoadLibrary(Inspect(path)).ok());
  EXPECT_EQ(lowest_free(), before);
}

TEST_F(LibraryTest, FindsLibrariesInTheSameDirectory) {
  Install("companion", "companion");
  const std::string path = Install("with_companion", "norm");
  EXPECT_EQ(GetVersion(LoadLibrary(Inspect(path))), "1.0.0");
}

}  // namespace
}  // namespace plumb
