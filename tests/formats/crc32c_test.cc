// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace plumb {
namespace {

TEST(Crc32cTest, HasThePublishedValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  // The values are those of RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(Crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cu);
}

// Whole words and remaining bytes are compared with long division, one bit at a time.
TEST(Crc32cTest, EveryLengthAndAlignmentEqualsLongDivision) {
  std::string text;
  for (int i = 0; i < 64; ++i) text.push_back(static_cast<char>(i * 37 + 11));
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t length = 0; length <= 40; ++length) {
      const absl::string_view bytes = absl::string_view(text).substr(begin, length);
      uint32_t crc = 0xffffffffu;
      for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
      }
      EXPECT_EQ(Crc32c(bytes), crc ^ 0xffffffffu) << begin << " + " << length;
    }
  }
}

TEST(Crc32cTest, TheMaskIsThatOfTfRecords) {
  // The first record of every event file has 24 bytes. Its header is known from existing files.
  EXPECT_EQ(MaskedCrc32c(absl::string_view("\x18\0\0\0\0\0\0\0", 8)), 0x224b7fa3u);
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8u);
}

}  // namespace
}  // namespace plumb
