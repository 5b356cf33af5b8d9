// SPDX-License-Identifier: Apache-2.0
// Mean, RMS and largest magnitude of a tensor, in one pass over memory. Stateless; results do not
// depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_

#include <cmath>
#include <cstdint>

#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

// Statistics over finite elements. The others are only counted, since one of them would make every
// sum non-finite. Denormals count as zeros, as in the ops of a program. Sums of f32 squares do not
// overflow a double. A value.
struct TensorStats {
  int64_t count = 0;      // number of finite elements
  int64_t nonfinite = 0;  // number of NaNs and infinities
  double sum = 0;
  double sum_squares = 0;
  float max_abs = 0;

  void Add(const TensorStats& other);
  double Mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  double Rms() const { return count > 0 ? std::sqrt(sum_squares / static_cast<double>(count)) : 0; }
};

// Returns the statistics of x[0..n), in blocks of fixed size that are added in order. Independent
// of the caller's floating-point mode.
TensorStats ComputeStats(const float* x, int64_t n, int threads);
TensorStats ComputeStats(const uint16_t* x, int64_t n, int threads);  // bf16
// Returns bit-identical statistics for the same numbers in split form.
TensorStats ComputeStats(const SplitF32& x, int64_t n, int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_TENSOR_STATS_H_
