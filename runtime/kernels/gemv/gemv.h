// SPDX-License-Identifier: Apache-2.0
// GEMV, and GEMM of few rows: y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as in decoding. Every weight is
// read once, so memory bandwidth is the limit. The rows of w are read as four interleaved streams,
// with AMX as sixteen, each sequential, which hardware prefetchers recognise.
//
// Rounding: element [i,j] is one chain of fused multiply-adds over vectors of k and one sum of
// their lanes, or with AMX one chain over pairs. m and the partition of w never change it: a
// sequence decodes to the same bits alone and in a batch. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_

#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Limits. More rows are faster as GEMM. A matrix with fewer weights stays in the L1 cache, and
// transposing it costs less than the horizontal sums.
inline constexpr int64_t kMaxGemvRows = 64;
inline constexpr int64_t kMinGemvWeights = 4096;
// Returns true if these kernels are used. Independent of m up to the limit, so that bits are equal.
inline bool UseGemv(int64_t m, int64_t n, int64_t k) {
  return m <= kMaxGemvRows && k >= 32 && n * k >= kMinGemvWeights;
}

struct GemvArgs {
  int64_t m, n, k;
  const void* x;            // [m, k]: f32, bf16 for bf16x2, or packed for AmxBf16Gemv
  const void* w;            // [n, k]: f32 or bf16
  const float* bias;        // [n], or null
  void* y;                  // [m, n], of type `out`
  DType out = DType::kF32;  // kF32 or kBF16
};

inline constexpr int64_t kGemvStreams = 4;
// Computes columns s * (n / 4) + j of y for each stream s and all j in [begin, end), a range within
// [0, n / 4]. The range with end == n / 4 also computes the n % 4 remaining columns.
using GemvFn = void (*)(const GemvArgs& args, int64_t begin, int64_t end);

// Returns the function for x in f32 and `weights`, kF32 or kBF16; or, with `pairs`, for x and w in
// bf16, which multiplies them as bf16x2. It sums pairs, so its bits differ from those of widened
// operands. `pairs` requires UsesBf16Instructions().
GemvFn SelectGemv(DType weights, bool pairs = false);

// Returns the same for 16 streams, with w in bf16, k a multiple of 32 and n >= 16. Requires:
// HasAmx().
inline constexpr int64_t kAmxStreams = 16;
GemvFn AmxBf16Gemv();
// Packs the bf16 rows x [m, k] for it, to PackedAmxBytes(m, k) bytes.
int64_t PackedAmxBytes(int64_t m, int64_t k);
void PackAmxRows(const uint16_t* x, int64_t m, int64_t k, int threads, void* to);

// Transposes to[p * width + j] = b[j * ldb + p] for j < n, p < k. `width` is n rounded up to whole
// vectors; the columns beyond n are copies of the last one.
using TransposeFn = void (*)(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width,
                             float* to);
TransposeFn SelectTranspose();

// Widens to[i] = x[i].
void WidenFromBf16(const uint16_t* x, int64_t n, float* to);

// One product of fixed shape, partitioned into tasks, for GemvJob (gemv_job.h).
class Gemv {
 public:
  // x is kF32 or kBF16. Packing for AMX is worth it if all tasks of a product share it.
  Gemv(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out, bool may_pack);

  int64_t scratch_bytes() const {
    return packs_ ? PackedAmxBytes(m_, k_) : widens_ ? AlignUp(m_ * k_ * SizeOf(DType::kF32)) : 0;
  }

  struct Operands {
    const void* x;
    const void* w;
    const float* bias;  // or null
    void* y;            // [m, n]
  };
  using Args = GemvArgs;
  // Returns the arguments of the tasks. Requires: `scratch` is exclusive to this call and aligned
  // to 64 bytes.
  Args Prepare(const Operands& operands, int threads, void* scratch) const;

  int64_t tasks() const { return tasks_; }
  void RunTask(const Args& args, int64_t i) const {
    const Range range = TaskRange(units_, tasks_, i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, k_;
  DType out_;
  bool packs_, widens_;  // bf16 rows are packed for AMX, or widened; else they are read in place
  GemvFn multiply_;
  int64_t units_, tasks_;  // columns or blocks of them, and the tasks that share them
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_H_
