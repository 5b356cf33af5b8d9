// SPDX-License-Identifier: Apache-2.0
// GEMV by an int8 matrix (quantize.h), y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as in decoding. x is
// quantized to 16 bits with a scale per group of 64, so that two 16-bit products are one
// instruction and their sums are exact. The error of an element of x is at most 1/65534 of the
// largest in its group, that of a weight 1/254.
//
// Each thread reads its tiles as one sequential stream. A lane is a row of w, so there are no
// horizontal sums. Rounding: element [i,j] is one chain of fused multiply-adds over groups; m and
// the partition of w never change it. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/parallel.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

struct Int8GemvArgs {
  int64_t m, n, groups;
  const int16_t* x;       // [m, groups, 64], by QuantizeInt16
  const float* x_scales;  // [m, groups]
  const int8_t* w;        // in the layout of Int8Elements
  const float* w_scales;  // in the layout of Int8Scales
  const float* bias;      // [n], or null
  float* y;               // [m, n]
};

// Computes the columns of y that correspond to the rows of w in blocks [begin, end).
using Int8GemvFn = void (*)(const Int8GemvArgs& args, int64_t begin, int64_t end);

// Returns the function for this processor: the VNNI one if it has VNNI.
Int8GemvFn SelectInt8Gemv();
Int8GemvFn VnniInt8Gemv();  // Requires: HasVnni().
Int8GemvFn PortableInt8Gemv();

// One product of fixed shape, partitioned into tasks, for GemvJob (gemv_job.h).
class Int8Gemv {
 public:
  Int8Gemv(int64_t m, int64_t n, int64_t k);

  struct Operands {
    const int16_t* x;
    const float* x_scales;
    const int8_t* w;
    const float* w_scales;
    const float* bias;  // or null
    float* y;           // [m, n]
  };
  using Args = Int8GemvArgs;

  int64_t scratch_bytes() const { return 0; }
  Args Prepare(const Operands& o, void* /*scratch*/) const {
    return {m_, n_, groups_, o.x, o.x_scales, o.w, o.w_scales, o.bias, o.y};
  }

  int64_t tasks() const { return tasks_; }
  void RunTask(const Args& args, int64_t i) const {
    const Range range = TaskRange(Int8Blocks(n_), tasks_, i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, groups_, tasks_;
  Int8GemvFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
