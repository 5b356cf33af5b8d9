// SPDX-License-Identifier: Apache-2.0
// GemvJob: several GEMVs (gemv.h, gemv_int8.h) as one job of the worker pool.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_GEMV_JOB_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_GEMV_JOB_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"

namespace plumb {

// Returns the number of tasks, at most `max`, for a product of m rows by `weights` weights of
// `bytes` bytes. A thread's tasks are contiguous in memory, and short enough to balance the
// threads.
inline int64_t CountGemvTasks(int64_t m, int64_t weights, int64_t bytes, int64_t max) {
  constexpr int64_t kTaskBytes = 128 << 10, kTaskWork = 1 << 23, kMaxGemvTasks = 2048;
  if (weights * (m + 3) < int64_t{1} << 18) return 1;
  const int64_t wanted = std::max(bytes / kTaskBytes, m * weights / kTaskWork);
  return std::max<int64_t>(1, std::min({wanted, max, kMaxGemvTasks}));
}

inline constexpr size_t kMaxGemvs = 8;

// Runs the tasks of all products in one ParallelFor, so that threads synchronize only once. Product
// is Gemv or Int8Gemv. Immutable and thread-safe after the last Add.
template <class Product>
class GemvJob {
 public:
  // Requires: at most kMaxGemvs calls.
  void Add(const Product& product) {
    parts_.push_back({product, tasks_, scratch_bytes_});
    tasks_ += product.tasks();
    scratch_bytes_ += AlignUp(product.scratch_bytes());
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Computes all products; operands(r) returns those of product r. Requires: `scratch` is exclusive
  // to this call and aligned to 64 bytes.
  template <class OperandsOf>
  void Run(const OperandsOf& operands, void* scratch, int threads) const {
    std::array<typename Product::Args, kMaxGemvs> args;
    for (size_t r = 0; r < parts_.size(); ++r) {
      args[r] = parts_[r].product.Prepare(operands(r), threads,
                                          static_cast<char*>(scratch) + parts_[r].scratch_at);
    }
    ParallelFor(tasks_, threads, [&](int64_t i) {
      size_t r = 0;
      while (r + 1 < parts_.size() && i >= parts_[r + 1].first_task) ++r;
      parts_[r].product.RunTask(args[r], i - parts_[r].first_task);
    });
  }

 private:
  struct Part {
    Product product;
    int64_t first_task;
    int64_t scratch_at;  // offset in bytes
  };
  std::vector<Part> parts_;
  int64_t tasks_ = 0, scratch_bytes_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_GEMV_JOB_H_
