// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/file_hash.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/formats/hash.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

TEST(FileHashTest, EqualsTheContentHash) {
  const ScratchDir dir;
  for (const size_t size : {size_t{0}, size_t{5}, (size_t{1} << 20) + 7}) {
    std::string content(size, 'a');
    if (size > 0) content.back() = 'b';
    const auto hash = HashOfFile(dir.Write("file", content));
    ASSERT_TRUE(hash.ok()) << hash.status();
    EXPECT_EQ(*hash, HexDigits(ContentHash(content)));
  }
  EXPECT_EQ(HashOfFile(dir.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HashOfFile(dir.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(FileHashTest, ContentDecidesIfTheStampDiffers) {
  const ScratchDir dir;
  const std::string path = dir.Write("file", "weights");
  const FileStamp stamp = *StampOfFile(path);
  const std::string hash = *HashOfFile(path);
  EXPECT_TRUE(*HasContent(path, stamp, hash));
  EXPECT_TRUE(*HasContent(path, stamp, "not read"));

  const auto later = std::filesystem::last_write_time(path) + std::chrono::hours(1);
  std::filesystem::last_write_time(path, later);
  EXPECT_FALSE(*StampOfFile(path) == stamp);
  EXPECT_TRUE(*HasContent(path, stamp, hash));

  dir.Write("file", "weightz");
  std::filesystem::last_write_time(path, later);
  EXPECT_FALSE(*HasContent(path, stamp, hash));
  dir.Write("file", "weights and more");
  EXPECT_FALSE(*HasContent(path, stamp, hash));
  std::filesystem::remove(path);
  EXPECT_EQ(HasContent(path, stamp, hash).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace plumb
