// Products of a few rows by a weight matrix, y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as decoding
// makes them: every weight is read once, in order, well ahead of its use, so that memory sets the
// pace.
//
// Element [i,j] is one chain of fused multiply-adds over vectors of k and one sum of their lanes,
// whatever m and however the rows of w are cut: a sequence decodes to the same bits alone and among
// others. In int8 a group of kInt8Group has a chain of its own, which is scaled and added to the
// others'. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_OPS_MATVEC_H_
#define PLUMB_RUNTIME_OPS_MATVEC_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// More rows are quicker as a product of matrices. A matrix smaller than the least stays in the
// nearest cache, and to transpose it costs less than to sum so many vectors' lanes.
inline constexpr int64_t kMaxMatvecRows = 16;
inline constexpr int64_t kMinMatvecWeights = 4096;
// For which products there is a kernel here. Does not depend on m below the limit: see above.
inline bool UseMatvec(int64_t m, int64_t n, int64_t k) {
  return m <= kMaxMatvecRows && k >= 32 && n * k >= kMinMatvecWeights;
}

struct MatvecArgs {
  int64_t m, n, k;
  const float* x;       // [m, k]
  const void* w;        // [n, k]: f32, bf16 or int8
  const float* scales;  // of int8: [n, Int8Groups(k)]
  const float* bias;    // [n], or null
  void* y;              // [m, n]: f32 or bf16
  int64_t ldy;          // elements from one row of y to the next
};

// Computes columns [begin, end) of y.
using MatvecFn = void (*)(const MatvecArgs& args, int64_t begin, int64_t end);

// The function for this processor. `weights`: kF32, kBF16, kI8; `out`: kF32, kBF16.
MatvecFn SelectMatvec(DType weights, DType out);

// to[i] = x[i], widened.
void WidenFromBf16(const uint16_t* x, int64_t n, float* to);

// One product of fixed shape, on several threads.
class Matvec {
 public:
  // x: kF32 or kBF16.
  Matvec(int64_t m, int64_t n, int64_t k, DType x, DType weights, DType out);

  int64_t scratch_bytes() const { return widen_ ? AlignUp(m_ * k_ * SizeOf(DType::kF32)) : 0; }

  struct Operands {
    const void* x;
    const void* w;
    const float* scales;  // null unless the weights are int8
    const float* bias;    // or null
    void* y;              // [m, n]
  };
  // Calls finish(begin, end), on the thread that made them, when columns [begin, end) of all rows
  // of y are there: for what is to be done with them while they are in its cache. `scratch` is for
  // this call alone, aligned to 64 bytes.
  template <class Finish>
  void Run(const Operands& operands, void* scratch, int threads, const Finish& finish) const {
    const MatvecArgs args = Prepare(operands, scratch);
    ParallelFor(tasks_, threads, [&](int64_t i) {
      const Range blocks = TaskRange((n_ + kBlock - 1) / kBlock, tasks_, i);
      const int64_t begin = blocks.begin * kBlock, end = std::min(n_, blocks.end * kBlock);
      multiply_(args, begin, end);
      finish(begin, end);
    });
  }
  void Run(const Operands& operands, void* scratch, int threads) const {
    Run(operands, scratch, threads, [](int64_t, int64_t) {});
  }

 private:
  static constexpr int64_t kBlock = 4;  // rows of w that are multiplied together

  MatvecArgs Prepare(const Operands& operands, void* scratch) const;

  int64_t m_, n_, k_, tasks_;
  bool widen_;
  MatvecFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATVEC_H_
