// SPDX-License-Identifier: Apache-2.0
// DequantizedGemm: y[m,n] = x[m,k] w[n,k]^T (+ bias[n]) by an int8 matrix (quantize.h), where x has
// more rows than a GEMV takes: over panels of w, some rows each, which are dequantized and
// transposed in the cache and multiplied by all of x, in MC blocks of its rows. A panel is a task
// for one thread. Immutable, thread-safe.
//
// Rounding: that of small_gemm.h; neither m nor the partition of panels changes it.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_DEQUANTIZED_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_DEQUANTIZED_GEMM_H_

#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/kernels/gemm/small_gemm.h"

namespace plumb {

class DequantizedGemm {
 public:
  DequantizedGemm(int64_t n, int64_t k);

  int64_t panels() const { return CeilDiv(n_, panel_); }
  int64_t scratch_bytes() const;  // of RunPanel, a multiple of 64

  struct Operands {
    const float* x;
    const int8_t* w;
    const float* scales;
    const float* bias;  // or null
    float* y;
  };
  // The columns of y that are rows of panel i of w.
  void RunPanel(const Operands& operands, int64_t m, int64_t i, void* scratch) const;

 private:
  int64_t n_, k_, groups_;
  int64_t panel_;  // rows of w in a panel: some tiles
  SmallGemmFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_DEQUANTIZED_GEMM_H_
