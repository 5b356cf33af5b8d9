// SPDX-License-Identifier: Apache-2.0
// Hash of the content of files, for provenance and for detecting damage. It resists no adversary.
#ifndef PLUMB_RUNTIME_FORMATS_HASH_H_
#define PLUMB_RUNTIME_FORMATS_HASH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// The checksum of checkpoint files. It takes 32 bytes at a time, so that checking costs less than
// reading. The division of the bytes into Update calls does not matter.
//
//   four lanes, lane k starts at MixBits(k + 1); the stream is padded with zeros to a multiple of
//   32 bytes and the k-th little-endian 8-byte word of each block enters lane k:
//     lane = rotate_left((lane ^ word) * 0x9e3779b97f4a7c15, 29)
//   value: h = length in bytes; for each lane, h = MixBits(h ^ lane)   (base/rng.h)
//
// A step is a bijection of the word, so damage inside a single word always changes the value.
// Thread-compatible.
class ContentHasher {
 public:
  ContentHasher();
  void Update(absl::string_view bytes);
  uint64_t Finish() const;  // returns the hash of all bytes so far; may be called again later

 private:
  static constexpr size_t kBlock = 32;
  void Absorb(const char* block);

  uint64_t lanes_[4];
  uint64_t length_ = 0;
  char pending_[kBlock];
  size_t pending_size_ = 0;
};

uint64_t ContentHash(absl::string_view bytes);

// Returns 16 lower-case hexadecimal digits.
std::string HexDigits(uint64_t value);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_HASH_H_
