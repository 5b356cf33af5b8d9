// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace plumb {
namespace {

TEST(AlignedBufferTest, EmptyBufferHasNoMemory) {
  EXPECT_EQ(AlignedBuffer().data(), nullptr);
  EXPECT_EQ(AlignedBuffer().size(), 0);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).size(), 0);
}

TEST(AlignedBufferTest, IsAlignedAndZeroAtEverySize) {
  // The last three sizes surround the threshold from which huge pages are used.
  for (const int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{4097},
                              (int64_t{4} << 20) - 1, int64_t{4} << 20, (int64_t{4} << 20) + 3}) {
    const AlignedBuffer buffer(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u) << bytes;
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) {
      return b == std::byte{0};
    })) << bytes;
  }
}

TEST(AlignedBufferTest, MoveTransfersTheMemory) {
  AlignedBuffer a(256);
  a.as<float>()[63] = 2.5f;
  const std::byte* memory = a.data();

  AlignedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  EXPECT_EQ(b.size(), 256);
  EXPECT_EQ(b.as<float>()[63], 2.5f);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0);

  AlignedBuffer c(64);
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(c.size(), 256);
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_EQ(b.size(), 0);
}

TEST(AlignedBufferTest, AlignUpRoundsToWholeLines) {
  EXPECT_EQ(AlignUp(0), 0);
  EXPECT_EQ(AlignUp(1), 64);
  EXPECT_EQ(AlignUp(64), 64);
  EXPECT_EQ(AlignUp(65), 128);
}

}  // namespace
}  // namespace plumb
