// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/bench/bench_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

constexpr int64_t kFirst = 0x100;  // past the control characters
constexpr int64_t kSurrogates = 0xD800, kAfterSurrogates = 0xE000;
constexpr int64_t kByteOrderMark = 0xFEFF;  // at the start of a file it is not part of the text
constexpr int64_t kAfterLast = 0x110000;

// The i-th character that may be used.
int64_t CodePoint(int64_t i) {
  int64_t code = kFirst + i;
  if (code >= kSurrogates) code += kAfterSurrogates - kSurrogates;
  return code >= kByteOrderMark ? code + 1 : code;
}

void AppendUtf8(int64_t code, std::string* text) {
  const auto tail = [text](int64_t bits) {
    text->push_back(static_cast<char>(0x80 | (bits & 63)));
  };
  if (code < 0x800) {
    text->push_back(static_cast<char>(0xC0 | (code >> 6)));
  } else if (code < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(code >> 6);
  } else {
    text->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(code >> 12);
    tail(code >> 6);
  }
  tail(code);
}

}  // namespace

absl::StatusOr<std::string> RandomText(int64_t vocab_size, int64_t tokens, uint64_t seed) {
  constexpr int64_t kMost = kAfterLast - kFirst - (kAfterSurrogates - kSurrogates) - 1;
  if (vocab_size < 1 || vocab_size > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocab_size,
                                                   " tokens cannot be drawn from at random; it "
                                                   "may have 1 to ",
                                                   kMost));
  }
  std::string text;
  for (const int64_t i : Permutation(RngStream(seed, "bench-order"), vocab_size)) {
    AppendUtf8(CodePoint(i), &text);
  }
  const RngStream stream(seed, "bench-text");
  for (int64_t i = vocab_size; i < std::max<int64_t>(tokens, 2); ++i) {
    const uint64_t draw = stream.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size));
    AppendUtf8(CodePoint(static_cast<int64_t>(draw)), &text);
  }
  return text;
}

}  // namespace plumb
