// SPDX-License-Identifier: Apache-2.0
// The SIMD functions of the causal convolution, on rows [tokens, channels] of one sequence.
// Stateless. Private to the module.
#ifndef PLUMB_RUNTIME_OPS_CAUSAL_CONV_ROWS_H_
#define PLUMB_RUNTIME_OPS_CAUSAL_CONV_ROWS_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"

namespace plumb {

// Arguments of y_t = bias + sum_i taps_i * x_{t + i step}, over i < width with 0 <= t + i step <
// rows, in this order for any range of rows. step -1: the convolution, 1: its transpose.
struct ConvolveArgs {
  const void* x;  // [rows, channels], f32 or bf16
  void* y;        // like x; its row 0 is row `first`
  int64_t rows, first, channels;
  int64_t width, step;
  const float* taps;  // [width, channels]
  const float* bias;  // [channels], or null
};
// Computes rows [begin, end).
using ConvolveFn = void (*)(const ConvolveArgs& args, int64_t begin, int64_t end);
ConvolveFn ChooseConvolve(DType dtype);

// Arguments of dweight[c][i] = sum over sequences and rows of x_{t - i} dy_t, summed in f32 over
// kConvChunk rows and then in double.
struct ConvolveGradArgs {
  const void* x;   // [sequences, rows, channels], f32 or bf16
  const void* dy;  // like x
  int64_t sequences, rows, channels;
  int64_t width;
  float* dweight;  // [channels, width]
};
// Computes channels [begin, end); begin is a multiple of kConvChannels.
using ConvolveGradFn = void (*)(const ConvolveGradArgs& args, int64_t begin, int64_t end);
ConvolveGradFn ChooseConvolveGrad(DType dtype);

inline constexpr int64_t kConvChunk = 128;
inline constexpr int64_t kConvChannels = 32;  // whole vectors and cache lines

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_CAUSAL_CONV_ROWS_H_
