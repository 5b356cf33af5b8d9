// SPDX-License-Identifier: Apache-2.0
// DequantizedGemm: y[m,n] = x[m,k] w[n,k]^T (+ bias[n]) with an int8 matrix w (quantize.h), for
// more rows of x than a GEMV takes. It dequantizes and transposes a panel of w, which is some of
// its rows, in the cache, and multiplies it by all of x in MC blocks. A panel is a task for one
// thread. Immutable, thread-safe.
//
// Rounding: see small_gemm.h; neither m nor the partition into panels changes it.
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
  int64_t scratch_bytes() const;  // scratch of RunPanel, a multiple of 64

  struct Operands {
    const float* x;
    const int8_t* w;
    const float* scales;
    const float* bias;  // or null
    float* y;
  };
  // Computes the columns of y that correspond to the rows of panel i of w.
  void RunPanel(const Operands& operands, int64_t m, int64_t i, void* scratch) const;

 private:
  int64_t n_, k_, groups_;
  int64_t panel_;  // number of rows of w in a panel: a multiple of the tile's
  SmallGemmFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_DEQUANTIZED_GEMM_H_
