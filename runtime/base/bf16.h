// SPDX-License-Identifier: Apache-2.0
// bf16: the upper half of an f32, with eight exponent bits and seven mantissa bits. These are the
// scalar conversions; the vector ones of the kernels (runtime/kernels/simd/bf16-inl.h) agree with
// them to the bit.
#ifndef PLUMB_RUNTIME_BASE_BF16_H_
#define PLUMB_RUNTIME_BASE_BF16_H_

#include <cstdint>
#include <cstring>

namespace plumb {

inline float FloatFromBf16(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounds to nearest, ties to even. A NaN stays a NaN.
inline uint16_t Bf16FromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_BF16_H_
