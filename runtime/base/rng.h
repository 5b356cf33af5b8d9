// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A stream is named by (seed, purpose, step); the i-th draw is a pure function
// of that name and i, so resuming needs no saved state and the order of calls changes no value.
#ifndef PLUMB_RUNTIME_BASE_RNG_H_
#define PLUMB_RUNTIME_BASE_RNG_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns FNV-1a, 64 bits, byte by byte: the published function, so that anybody can recompute the
// hash of a data file in five lines of any language.
uint64_t Fnv1a64(absl::string_view bytes);

// Spreads a number over all 64 bits: the finalizer of SplitMix64.
uint64_t MixBits(uint64_t x);

class RngStream {
 public:
  RngStream(uint64_t seed, absl::string_view purpose, uint64_t step = 0);

  uint64_t Bits(uint64_t i) const;               // 64 uniform bits
  double Uniform(uint64_t i) const;              // [0, 1), 53 bits
  double Normal(uint64_t i) const;               // N(0, 1), Box-Muller on draw i
  uint64_t Below(uint64_t i, uint64_t n) const;  // [0, n); the bias is negligible for n << 2^64

  // Philox's key, and the upper half of its counters; the lower half is the draw's index.
  uint64_t key() const { return key_; }
  uint64_t step() const { return step_; }

 private:
  uint64_t key_;
  uint64_t step_;
};

// Returns 0..n-1 in a random order (Fisher-Yates on the stream's draws).
std::vector<int64_t> Permutation(const RngStream& stream, int64_t n);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_RNG_H_
