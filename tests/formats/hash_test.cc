// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace plumb {
namespace {

TEST(HashTest, ContentHashIgnoresPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 7));
  for (size_t length : {0u, 1u, 31u, 32u, 33u, 64u, 300u}) {
    const std::string whole = text.substr(0, length);
    for (size_t step : {1u, 5u, 31u, 32u, 33u, 100u}) {
      ContentHasher hasher;
      for (size_t i = 0; i < length; i += step) hasher.Update(whole.substr(i, step));
      EXPECT_EQ(hasher.Finish(), ContentHash(whole))
          << length << " bytes, " << step << " at a time";
    }
  }
}

// The values are fixed because existing checkpoints contain them.
TEST(HashTest, ContentHashIsStable) {
  EXPECT_EQ(HexDigits(ContentHash("")), "f5090121407b6dff");
  EXPECT_EQ(HexDigits(ContentHash("the quick brown fox jumps over the lazy dog")),
            "f85c584c8d253455");
}

TEST(HashTest, ContentHashSeesEveryByteAndTheLength) {
  const std::string text(100, '\0');
  std::set<uint64_t> seen = {ContentHash(text)};
  for (size_t i = 0; i < text.size(); ++i) {
    std::string altered = text;
    altered[i] = 1;
    seen.insert(ContentHash(altered));
  }
  for (size_t length = 0; length < text.size(); ++length) {
    seen.insert(ContentHash(text.substr(0, length)));
  }
  EXPECT_EQ(seen.size(), 201u);
}

TEST(HashTest, HexDigitsArePadded) { EXPECT_EQ(HexDigits(0xab), "00000000000000ab"); }

}  // namespace
}  // namespace plumb
