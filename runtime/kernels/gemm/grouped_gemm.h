// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM: products of groups of rows, each with its own matrix, as for the experts of a
// mixture of experts. Rows [starts[g], starts[g + 1]) of one matrix are group g. The sizes of the
// groups are known only at run time, so the engine is chosen for groups of equal size
// (gemm_plan.h), and tasks are partitioned from the actual groups. Blocks are multiplied as in Gemm
// (block_product.h); groups of few rows use GEMV, which reads a matrix only once.
//
// Rounding: an element is a function of shape, processor, engine, oneDNN's version and the sizes of
// the groups. In a group of up to kMaxGemvRows rows it does not depend on the other rows. The
// number of threads never changes it. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GROUPED_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GROUPED_GEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemm/block_product.h"
#include "runtime/kernels/gemm/epilogue.h"
#include "runtime/kernels/gemm/gemm_plan.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/kernels/gemm/group_tasks.h"
#include "runtime/kernels/gemv/gemv.h"

namespace plumb {

struct GroupedShape {
  int64_t groups;
  int64_t rows;  // total over all groups
};

// Computes c[rows, n]: c_i = a_i op(b_g) (+ bias_g) for each row i of group g.
class GroupedGemm {
 public:
  // `operands` is the dtype of a [rows, k] and b [groups, k, n] or, transposed, [groups, n, k].
  GroupedGemm(const GroupedShape& groups, int64_t n, int64_t k, bool transpose_b, DType operands,
              DType out, const GemmPolicy& policy);

  int64_t scratch_bytes() const { return tasks_.scratch_bytes() + slots_ * slot_bytes(); }

  struct Operands {
    const void* a;
    const void* b;
    const float* bias;      // [groups, n], or null
    const int32_t* starts;  // [groups + 1], ascending from 0 to rows
    void* c;
  };
  // Errors: kResourceExhausted if oneDNN cannot allocate memory.
  absl::Status Run(const Operands& operands, void* scratch, int threads) const;

  std::string ToString() const;

 private:
  bool IsGemv(int64_t rows) const { return has_gemv_ && rows <= kMaxGemvRows; }
  int64_t slot_bytes() const { return sum_bytes_ + engine_bytes_; }
  void RunGemv(const Operands& operands, const GroupTask& task, void* scratch) const;
  absl::Status RunBlock(const Operands& operands, const GroupTask& task, char* scratch) const;

  const GroupedShape groups_;
  const GemmShape shape_;  // shape for groups of equal size
  const DType out_;
  bool has_gemv_;
  GemmPlan plan_;  // only the columns of its grid are used
  BlockProduct product_;
  std::vector<Gemv> gemvs_;  // for m = 1, 2, ... rows
  EpilogueFn store_;
  GroupTasks tasks_;
  int slots_ = 1;
  int64_t sum_bytes_ = 0, engine_bytes_ = 0;  // per slot
};

// Computes c[groups, m, n] in f32: c_g = sum over rows i of group g of a_i^T b_i; 0 for an empty
// group.
class GroupedOuterGemm {
 public:
  // `operands` is the dtype of a [rows, m] and b [rows, n].
  GroupedOuterGemm(const GroupedShape& groups, int64_t m, int64_t n, DType operands,
                   const GemmPolicy& policy);

  int64_t scratch_bytes() const { return slots_ * slot_bytes_; }
  absl::Status Run(const void* a, const void* b, const int32_t* starts, float* c, void* scratch,
                   int threads) const;
  std::string ToString() const;

 private:
  const GroupedShape groups_;
  const GemmShape shape_;  // shape for groups of equal size
  GemmPlan plan_;
  BlockProduct product_;
  int slots_ = 1;
  int64_t slot_bytes_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GROUPED_GEMM_H_
