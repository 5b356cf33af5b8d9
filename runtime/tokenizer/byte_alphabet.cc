// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "runtime/base/utf8.h"

namespace plumb {
namespace {

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr uint32_t kFirstOther = 256, kOthers = 68;

struct Alphabet {
  std::array<uint32_t, 256> character = {};
  std::array<uint8_t, kOthers> other = {};  // byte of the character kFirstOther + i

  constexpr Alphabet() {
    uint32_t others = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      character[byte] = byte;
      if (StandsForItself(byte)) continue;
      other[others] = static_cast<uint8_t>(byte);
      character[byte] = kFirstOther + others++;
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string ToByteAlphabet(absl::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    AppendUtf8(kAlphabet.character[static_cast<unsigned char>(c)], &text);
  }
  return text;
}

absl::optional<std::string> FromByteAlphabet(absl::string_view text) {
  std::string bytes;
  for (size_t offset = 0; offset < text.size();) {
    const absl::optional<uint32_t> c = NextCodePoint(text, &offset);
    if (!c) return absl::nullopt;
    if (*c >= kFirstOther && *c < kFirstOther + kOthers) {
      bytes.push_back(static_cast<char>(kAlphabet.other[*c - kFirstOther]));
    } else if (*c < 256 && StandsForItself(*c)) {
      bytes.push_back(static_cast<char>(*c));
    } else {
      return absl::nullopt;
    }
  }
  return bytes;
}

}  // namespace plumb
