// Products of a few rows by a weight matrix, y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as decoding
// makes them: every weight is read once, so that memory sets the pace. The rows of w are read in
// four bands side by side, each from its beginning to its end: four long streams, which is what
// processors recognise and fetch ahead of their use.
//
// Element [i,j] is one chain of fused multiply-adds over vectors of k and one sum of their lanes,
// whatever m and however the rows of w are cut: a sequence decodes to the same bits alone and among
// others. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_

#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// More rows are quicker as a product of matrices. A matrix smaller than the least stays in the
// nearest cache, and to transpose it costs less than to sum so many vectors' lanes.
inline constexpr int64_t kMaxGemvRows = 16;
inline constexpr int64_t kMinGemvWeights = 4096;
// For which products there is a kernel here. Does not depend on m below the limit: see above.
inline bool UseGemv(int64_t m, int64_t n, int64_t k) {
  return m <= kMaxGemvRows && k >= 32 && n * k >= kMinGemvWeights;
}

struct GemvArgs {
  int64_t m, n, k;
  const void* x;      // [m, k]: f32, or bf16 for FastBf16Gemv
  const void* w;      // [n, k]: f32 or bf16
  const float* bias;  // [n], or null
  void* y;            // [m, n]: f32 or bf16
};

inline constexpr int64_t kGemvBands = 4;
// Computes columns b * (n / 4) + j of y for each of the bands b and all j of [begin, end), which is
// within [0, n / 4]. The columns that are left of n, fewer than four, belong to the end of the
// last.
using GemvFn = void (*)(const GemvArgs& args, int64_t begin, int64_t end);

// The function for this processor. `weights`, `out`: kF32, kBF16.
GemvFn SelectGemv(DType weights, DType out);
// x and w in bf16, multiplied as they are; only to be called where HasFastBf16(). Its sums are of
// pairs, so that bits differ from those of widened operands.
GemvFn FastBf16Gemv(DType out);

// to[i] = x[i], widened.
void WidenFromBf16(const uint16_t* x, int64_t n, float* to);

// One product of fixed shape, cut into tasks for several threads: for GemvJob (gemv_job.h).
class Gemv {
 public:
  // x: kF32 or kBF16.
  Gemv(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out);

  int64_t scratch_bytes() const { return widen_ ? AlignUp(m_ * k_ * SizeOf(DType::kF32)) : 0; }

  struct Operands {
    const void* x;
    const void* w;
    const float* bias;  // or null
    void* y;            // [m, n]
  };
  using Args = GemvArgs;
  // What tasks work on. `scratch` is for this call alone, aligned to 64 bytes.
  Args Prepare(const Operands& operands, void* scratch) const;

  int64_t tasks() const { return tasks_; }
  void RunTask(const Args& args, int64_t i) const {
    const Range range = TaskRange(n_ / kGemvBands, tasks_, i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, k_, tasks_, weight_bytes_;
  bool pairs_, widen_;  // bf16 operands: multiplied as they are, or widened
  GemvFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_
