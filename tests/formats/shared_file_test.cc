// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/shared_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

TEST(SharedFileTest, PartsThatAreWrittenInAnyOrderAreTheFile) {
  const ScratchDir scratch;
  const std::string path = scratch.File("file");
  ASSERT_TRUE(MakeSizedFile(path, "head", 10).ok());
  EXPECT_EQ(*ReadFile(path), std::string("head\0\0\0\0\0\0", 10));
  ASSERT_TRUE(WriteIntoFile(path, [](OffsetSink sink) { return sink(7, "end"); }).ok());
  ASSERT_TRUE(WriteIntoFile(path, [](OffsetSink sink) { return sink(4, "and"); }).ok());
  EXPECT_EQ(*ReadFile(path), "headandend");
  ASSERT_TRUE(MakeSizedFile(path, "new", 3).ok());
  EXPECT_EQ(*ReadFile(path), "new");
}

TEST(SharedFileTest, NothingIsWrittenIntoAFileThatIsNotThere) {
  const ScratchDir scratch;
  const absl::Status status =
      WriteIntoFile(scratch.File("none"), [](OffsetSink sink) { return sink(0, "x"); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("none: cannot open"));
}

// File system that writes one byte at a time, is interrupted, and has no space from byte 6 on.
class SmallDisk : public FileSystem {
 public:
  ssize_t WriteAt(int fd, const void* data, size_t n, off_t offset) override {
    if (++calls_ % 2 == 0) {
      errno = EINTR;
      return -1;
    }
    if (offset >= 6) {
      errno = ENOSPC;
      return -1;
    }
    return FileSystem::WriteAt(fd, data, std::min<size_t>(n, 1), offset);
  }

 private:
  int calls_ = 0;
};

TEST(SharedFileTest, ShortWritesContinueAndFullDisksFail) {
  const ScratchDir scratch;
  const std::string path = scratch.File("file");
  SmallDisk disk;
  absl::Status part, whole;
  {
    const ScopedFileSystem scoped(&disk);
    ASSERT_TRUE(MakeSizedFile(path, "ab", 8).ok());
    part = WriteIntoFile(path, [](OffsetSink sink) { return sink(2, "cdef"); });
    whole = WriteIntoFile(path, [](OffsetSink sink) { return sink(2, "cdefgh"); });
  }
  EXPECT_TRUE(part.ok()) << part;
  EXPECT_THAT(std::string(whole.message()), HasSubstr("file: cannot write: No space left"));
  EXPECT_EQ(*ReadFile(path), std::string("abcdef\0\0", 8));
}

}  // namespace
}  // namespace plumb
