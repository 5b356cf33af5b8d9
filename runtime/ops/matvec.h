// Products of a few rows by a weight matrix, y[m,n] = x[m,k] w[n,k]^T (+ bias[n]), as decoding
// makes them: every weight is read once, so that memory sets the pace. The rows of w are read in
// four bands side by side, each from its beginning to its end: four long streams, which is what
// processors recognise and fetch ahead of their use.
//
// Element [i,j] is one chain of fused multiply-adds over vectors of k and one sum of their lanes,
// whatever m and however the rows of w are cut: a sequence decodes to the same bits alone and among
// others. In int8 a group of kInt8Group has a chain of its own, which is scaled and added to the
// others'. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_OPS_MATVEC_H_
#define PLUMB_RUNTIME_OPS_MATVEC_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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
  const void* x;        // [m, k]: f32, or bf16 for FastBf16Matvec
  const void* w;        // [n, k]: f32, bf16 or int8
  const float* scales;  // of int8: [n, Int8Groups(k)]
  const float* bias;    // [n], or null
  void* y;              // [m, n]: f32 or bf16
  int64_t ldy;          // elements from one row of y to the next
};

inline constexpr int64_t kMatvecBands = 4;
// Computes columns b * (n / 4) + j of y for each of the bands b and all j of [begin, end), which is
// within [0, n / 4]. The columns that are left of n, fewer than four, belong to the end of the
// last.
using MatvecFn = void (*)(const MatvecArgs& args, int64_t begin, int64_t end);

// The function for this processor. `weights`: kF32, kBF16, kI8; `out`: kF32, kBF16.
MatvecFn SelectMatvec(DType weights, DType out);
// x and w in bf16, multiplied as they are; only to be called where HasFastBf16(). Its sums are of
// pairs, so that bits differ from those of widened operands.
MatvecFn FastBf16Matvec(DType out);

// to[i] = x[i], widened.
void WidenFromBf16(const uint16_t* x, int64_t n, float* to);

// One product of fixed shape, cut into tasks for several threads.
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
  // What tasks work on. `scratch` is for this call alone, aligned to 64 bytes.
  MatvecArgs Prepare(const Operands& operands, void* scratch) const;

  int64_t tasks() const { return tasks_; }
  // What tasks [begin, end) read of w.
  ReadAhead ReadsOf(const void* w, int64_t begin, int64_t end) const {
    const int64_t band = n_ / kMatvecBands;
    const int64_t first = TaskRange(band, tasks_, begin).begin;
    const int64_t row_bytes = k_ * weight_bytes_;
    return ReadAhead::Of(static_cast<const char*>(w) + first * row_bytes, band * row_bytes,
                         kMatvecBands, (TaskRange(band, tasks_, end).begin - first) * row_bytes);
  }
  void RunTask(const MatvecArgs& args, int64_t i) const {
    const Range range = TaskRange(n_ / kMatvecBands, tasks_, i);
    multiply_(args, range.begin, range.end);
  }

 private:
  int64_t m_, n_, k_, tasks_, weight_bytes_;
  bool pairs_, widen_;  // bf16 operands: multiplied as they are, or widened
  MatvecFn multiply_;
};

// Several products as one job: a thread that has done its part of one goes on with the next.
class Matvecs {
 public:
  static constexpr size_t kMost = 8;

  // REQUIRES: at most kMost calls.
  void Add(const Matvec& matvec) {
    parts_.push_back({matvec, tasks_, scratch_bytes_});
    tasks_ += matvec.tasks();
    scratch_bytes_ += AlignUp(matvec.scratch_bytes());
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

  // operands(r) are those of product r. `scratch` is for this call alone, aligned to 64 bytes.
  template <class OperandsOf>
  void Run(const OperandsOf& operands, void* scratch, int threads, NextReads next) const {
    std::array<MatvecArgs, kMost> args;
    for (size_t r = 0; r < parts_.size(); ++r) {
      args[r] =
          parts_[r].matvec.Prepare(operands(r), static_cast<char*>(scratch) + parts_[r].scratch_at);
    }
    ParallelFor(
        tasks_, threads,
        [&](int64_t i) {
          size_t r = 0;
          while (r + 1 < parts_.size() && i >= parts_[r + 1].first_task) ++r;
          parts_[r].matvec.RunTask(args[r], i - parts_[r].first_task);
        },
        next);
  }

  // What the thread with that seat (NextReads) reads first. weights(r) are those of product r.
  template <class WeightsOf>
  ReadAhead FirstReads(const WeightsOf& weights, int seat, int seats) const {
    // A job of one task is the caller's, whoever has time.
    if (tasks_ == 1) return {};
    const Range share = TaskRange(tasks_, seats, seat);
    size_t r = 0;
    while (r + 1 < parts_.size() && share.begin >= parts_[r + 1].first_task) ++r;
    const Part& part = parts_[r];
    const int64_t end = std::min(share.end - part.first_task, part.matvec.tasks());
    return part.matvec.ReadsOf(weights(r), share.begin - part.first_task, end);
  }

 private:
  struct Part {
    Matvec matvec;
    int64_t first_task;
    int64_t scratch_at;  // bytes
  };
  std::vector<Part> parts_;
  int64_t tasks_ = 0, scratch_bytes_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATVEC_H_
