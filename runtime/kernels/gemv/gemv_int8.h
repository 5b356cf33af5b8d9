// Products of a few rows by an int8 matrix (quantize.h), y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as
// decoding makes them. x is rounded to 16 bits, each group of 64 with a scale of its own, so that
// two products of 16 bits are one instruction and their sums are exact: an element is off by at
// most 1/65534 of the largest of its group, and the weights by 1/254 of theirs.
//
// Threads read their tiles from the first to the last, one stream of memory each. A lane is a row
// of w, and there is nothing to sum across lanes. Element [i,j] is one chain of fused
// multiply-adds over groups, whatever m and however w is cut. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/parallel.h"
#include "runtime/base/read_ahead.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

struct Int8MatvecArgs {
  int64_t m, n, groups;
  const int16_t* x;       // [m, groups, 64]: QuantizeInt16
  const float* x_scales;  // [m, groups]
  const int8_t* w;        // of Int8Elements
  const float* w_scales;  // of Int8Scales
  const float* bias;      // [n], or null
  float* y;               // [m, n]
};

// Computes the columns of y that are rows of the blocks [begin, end) of w.
using Int8MatvecFn = void (*)(const Int8MatvecArgs& args, int64_t begin, int64_t end);

// The function for this processor: the first, where it has VNNI.
Int8MatvecFn SelectInt8Matvec();
Int8MatvecFn VnniInt8Matvec();  // only to be called where HasVnni()
Int8MatvecFn PortableInt8Matvec();

// One product of fixed shape, cut into tasks for several threads: for MatvecJob (matvec_job.h).
class Int8Matvec {
 public:
  Int8Matvec(int64_t m, int64_t n, int64_t k);

  struct Operands {
    const int16_t* x;
    const float* x_scales;
    const int8_t* w;
    const float* w_scales;
    const float* bias;  // or null
    float* y;           // [m, n]
  };
  using Args = Int8MatvecArgs;

  int64_t scratch_bytes() const { return 0; }
  Args Prepare(const Operands& o, void* /*scratch*/) const {
    return {m_, n_, groups_, o.x, o.x_scales, o.w, o.w_scales, o.bias, o.y};
  }

  int64_t tasks() const { return tasks_; }
  // What tasks [begin, end) read of w first. One stream is soon running again by itself: more asked
  // for than is read while threads wait for each other made a token 2 % slower.
  ReadAhead ReadsOf(const void* w, int64_t begin, int64_t end) const {
    constexpr int64_t kMostBytes = 32 << 10;
    const int64_t block_bytes = groups_ * kInt8TileElements, blocks = Int8Blocks(n_);
    const int64_t first = TaskRange(blocks, tasks_, begin).begin;
    return ReadAhead::Of(
        static_cast<const char*>(w) + first * block_bytes, 0, 1,
        std::min(kMostBytes, (TaskRange(blocks, tasks_, end).begin - first) * block_bytes));
  }
  void RunTask(const Args& args, int64_t i) const {
    const Range range = TaskRange(Int8Blocks(n_), tasks_, i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, groups_, tasks_;
  Int8MatvecFn multiply_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_INT8_H_
