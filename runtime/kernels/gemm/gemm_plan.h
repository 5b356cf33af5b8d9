// SPDX-License-Identifier: Apache-2.0
// GemmPlan: engine and partition of one matrix product. A value, computed by a pure function of
// shape, types and policy; it prints, and `plumb explain --stage exec` shows it.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GEMM_PLAN_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GEMM_PLAN_H_

#include <cstdint>
#include <string>

#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemm/gemm_policy.h"

namespace plumb {

// Shape of c[m, n] = op(a) op(b); for a sum of products, k is the total over all of them.
struct GemmShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  DType operands;

  int64_t work() const { return m * n * k; }
};

// Maximum number of multiply-adds, some 8 us, for one thread; dispatching another costs about 1 us.
inline constexpr int64_t kMaxSerialWork = 1 << 20;

enum class GemmEngine {
  kOneDnn,  // dnnl_sgemm or its bf16 sibling, which pack both operands of a block
  kSmall,   // small_gemm.h, which packs a transposed b in panels and never packs a
  kTiles,   // tile_gemm.h, which multiplies bf16 by AMX
};

struct GemmPlan {
  GemmEngine engine = GemmEngine::kSmall;
  bool widens = false;  // widens bf16 operands to f32 in the cache, `k_block` terms at a time
  int64_t k_block = 0;  // KC block of widened operands
  int64_t rows = 1;     // size of the grid of blocks; each block is a task
  int64_t columns = 1;
  int64_t row_unit = 1;  // blocks begin at multiples of the units
  int64_t column_unit = 1;

  int64_t tasks() const { return rows * columns; }
  Range GetRows(const GemmShape& shape, int64_t i) const;     // 0 <= i < rows
  Range GetColumns(const GemmShape& shape, int64_t j) const;  // 0 <= j < columns
  int64_t MaxRows(const GemmShape& shape) const;              // of a block
  int64_t MaxColumns(const GemmShape& shape) const;
  // Returns "oneDNN f32 256x3072x768: 1x4 blocks of 256x768, packed by each task".
  std::string ToString(const GemmShape& shape) const;
};

GemmPlan PlanGemm(const GemmShape& shape, const GemmPolicy& policy);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GEMM_PLAN_H_
