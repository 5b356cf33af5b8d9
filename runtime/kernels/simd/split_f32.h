// f32 numbers in two halves that stand apart, so that programs read the upper ones as bf16 in place
// and nothing of the lower ones is lost. Stateless; results do not depend on the number of threads.
//
//   high = (bits + 0x8000) >> 16        the number rounded to bf16, to nearest, ties away from zero
//   low  = bits - (high << 16)          the rest, signed: -0x8000 .. 0x7fff
//   bits = (high << 16) + low           the number again, to the bit
//
// Ties cannot go to even: an even `high` would stand for 65537 numbers, and its neighbours for one
// less. A NaN, the only number that does not come back as it was, becomes a quiet one with a `low`
// of 0: its `high` is a NaN too.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_

#include <cstdint>
#include <cstring>

#include "runtime/base/aligned_buffer.h"

namespace plumb {

// Two planes of equal length. A value, which owns nothing.
struct FloatHalves {
  uint16_t* high;
  uint16_t* low;  // int16_t, in two's complement

  FloatHalves operator+(int64_t i) const { return {high + i, low + i}; }
};

// Where the halves of `n` numbers stand in memory that has room for them as floats and is a whole
// number of 128 bytes: both planes at multiples of 64 bytes, if `room` is.
inline FloatHalves HalvesIn(float* room, int64_t n) {
  auto* high = reinterpret_cast<uint16_t*>(room);
  return {high, high + AlignUp(n * 2) / 2};
}

// One number; kernels agree with these to the bit.
inline float JoinHalves(uint16_t high, uint16_t low) {
  const uint32_t sign = 0u - (low >> 15);  // of `low`, which is subtracted from `high` as a borrow
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

// n numbers.
void SplitFloats(const float* from, int64_t n, int threads, const FloatHalves& to);
void JoinFloats(const FloatHalves& from, int64_t n, int threads, float* to);
// The high ones alone.
void HighHalves(const float* from, int64_t n, int threads, uint16_t* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_SPLIT_F32_H_
