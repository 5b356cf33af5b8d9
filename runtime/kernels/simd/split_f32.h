// SPDX-License-Identifier: Apache-2.0
// Split f32: an array of floats as two planes of 16 bits, a high bf16 and a low correction for each
// number, so that programs read the high plane as bf16 in place and no bit of the f32 is lost.
// Stateless; results do not depend on the number of threads.
//
//   high = (bits + 0x8000) >> 16        the number rounded to bf16, to nearest, ties away from zero
//   low  = bits - (high << 16)          the signed rest: -0x8000 .. 0x7fff
//   bits = (high << 16) + low           the original number, to the bit
//
// Ties cannot go to even: an even `high` would represent 65537 numbers, and its neighbours one
// less. A NaN is the only number that may change: it becomes a quiet NaN with a `low` of 0, so that
// `high` is a NaN too.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_

#include <cstdint>
#include <cstring>

#include "runtime/base/aligned_buffer.h"

namespace plumb {

// Two planes of equal length. A value that owns nothing.
struct SplitF32 {
  uint16_t* high;
  uint16_t* low;  // bits of an int16_t in two's complement

  SplitF32 operator+(int64_t i) const { return {high + i, low + i}; }
};

// Returns the planes of `n` numbers in `storage`, which has n floats rounded up to a multiple of
// 128 bytes. Both are aligned to 64 bytes if `storage` is.
inline SplitF32 SplitF32In(float* storage, int64_t n) {
  auto* high = reinterpret_cast<uint16_t*>(storage);
  return {high, high + AlignUp(n * 2) / 2};
}

// Converts one number; kernels agree with these to the bit.
inline float JoinFloat(uint16_t high, uint16_t low) {
  const uint32_t sign = 0u - (low >> 15);  // -1 if `low` is negative: a borrow from `high`
  const uint32_t bits = ((static_cast<uint32_t>(high) + sign) << 16) | low;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline void SplitFloat(float value, uint16_t* high, uint16_t* low) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = (bits & 0xffff0000u) | 0x400000u;
  *high = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  *low = static_cast<uint16_t>(bits);
}

// Converts n numbers.
void SplitFloats(const float* from, int64_t n, int threads, const SplitF32& to);
void JoinFloats(const SplitF32& from, int64_t n, int threads, float* to);
// Computes only the high plane.
void HighBf16(const float* from, int64_t n, int threads, uint16_t* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_
