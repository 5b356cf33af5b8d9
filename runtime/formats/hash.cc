// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/hash.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read without conversion");

uint64_t RotateLeft(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

}  // namespace

ContentHasher::ContentHasher() {
  for (uint64_t k = 0; k < 4; ++k) lanes_[k] = MixBits(k + 1);
}

void ContentHasher::Absorb(const char* block) {
  uint64_t words[4];
  std::memcpy(words, block, kBlock);
  for (int k = 0; k < 4; ++k) {
    lanes_[k] = RotateLeft((lanes_[k] ^ words[k]) * 0x9e3779b97f4a7c15u, 29);
  }
}

void ContentHasher::Update(absl::string_view bytes) {
  length_ += bytes.size();
  if (pending_size_ > 0) {
    const size_t taken = std::min(kBlock - pending_size_, bytes.size());
    std::copy_n(bytes.data(), taken, pending_ + pending_size_);
    pending_size_ += taken;
    bytes.remove_prefix(taken);
    if (pending_size_ < kBlock) return;
    Absorb(pending_);
    pending_size_ = 0;
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) Absorb(bytes.data());
  std::copy_n(bytes.data(), bytes.size(), pending_);
  pending_size_ = bytes.size();
}

uint64_t ContentHasher::Finish() const {
  ContentHasher last = *this;
  if (last.pending_size_ > 0) {
    std::fill(last.pending_ + last.pending_size_, last.pending_ + kBlock, '\0');
    last.Absorb(last.pending_);
  }
  uint64_t hash = length_;
  for (uint64_t lane : last.lanes_) hash = MixBits(hash ^ lane);
  return hash;
}

uint64_t ContentHash(absl::string_view bytes) {
  ContentHasher hasher;
  hasher.Update(bytes);
  return hasher.Finish();
}

std::string HexDigits(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

}  // namespace plumb
