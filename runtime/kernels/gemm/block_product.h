// SPDX-License-Identifier: Apache-2.0
// BlockProduct: computes one block of a matrix product on the calling thread, with the engine of a
// plan, which may also widen bf16 operands to f32. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_BLOCK_PRODUCT_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_BLOCK_PRODUCT_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemm/gemm_plan.h"
#include "runtime/kernels/gemm/small_gemm.h"
#include "runtime/onednn/gemm.h"

namespace plumb {

class BlockProduct {
 public:
  // Requires: `plan` is for products of these operands. The caller handles the plan's grid.
  BlockProduct(const GemmPlan& plan, DType operands, bool transpose_a, bool transpose_b);

  // Returns the scratch size for a block of at most these sizes, a multiple of 64.
  int64_t scratch_bytes(int64_t rows, int64_t columns, int64_t k) const;

  // Computes the block. `args` has the transposes of the constructor. c starts from `start`, which
  // only the small engine supports, and only without `args.accumulate`.
  absl::Status Run(const GemmArgs& args, const GemmStart& start, void* scratch) const;

  GemmEngine engine() const { return engine_; }

 private:
  absl::Status RunWidened(const GemmArgs& args, const GemmStart& start, float* scratch) const;
  absl::Status Multiply(DType operands, const GemmArgs& args, const GemmStart& start,
                        float* scratch) const;

  DType operands_;
  GemmEngine engine_;
  bool widens_;
  int64_t k_block_;
  SmallGemmFn small_;
};

// Calls run(i, slot) for every i and returns the first failure.
template <class Run>
absl::Status RunBlocks(int64_t tasks, int threads, const Run& run) {
  std::atomic<bool> failed{false};
  absl::Status failure;
  ParallelFor(tasks, threads, [&](int64_t i, int slot) {
    if (failed.load(std::memory_order_relaxed)) return;
    absl::Status status = run(i, slot);
    if (!status.ok() && !failed.exchange(true)) failure = std::move(status);
  });
  return failure;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_BLOCK_PRODUCT_H_
