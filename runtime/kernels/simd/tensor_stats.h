// Sums over the elements of a tensor, from which its mean, RMS and largest magnitude follow: one
// pass over memory. Stateless; results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_

#include <cmath>
#include <cstdint>

#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

// Over finite elements; the others are counted apart, since one of them would hide all that can
// still be said. Denormals count as zeros, which they are to the ops of a program. Sums of f32
// squares stay within a double. A value.
struct TensorStats {
  int64_t count = 0;      // finite elements
  int64_t nonfinite = 0;  // NaN or infinite
  double sum = 0;
  double sum_squares = 0;
  float max_abs = 0;

  void Add(const TensorStats& other);
  double Mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  double Rms() const { return count > 0 ? std::sqrt(sum_squares / static_cast<double>(count)) : 0; }
};

// Of x[0..n), cut into stretches of fixed size, which are added in their order. The same whatever
// the caller's floating-point mode does to denormals.
TensorStats StatsOf(const float* x, int64_t n, int threads);
TensorStats StatsOf(const uint16_t* x, int64_t n, int threads);  // of bf16
// Those of the floats, to the bit.
TensorStats StatsOf(const SplitF32& x, int64_t n, int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_
