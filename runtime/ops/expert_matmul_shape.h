// The shapes of products by the matrices of experts, and the checks that they share. Pure.
#ifndef PLUMB_RUNTIME_OPS_EXPERT_MATMUL_SHAPE_H_
#define PLUMB_RUNTIME_OPS_EXPERT_MATMUL_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/grouped_gemm.h"

namespace plumb {

// expert_matmul: x [rows, k] and w [groups, k, n] or, transposed, [groups, n, k].
struct ExpertProduct {
  bool transpose_b;
  GroupedShape groups;
  int64_t n, k;

  ExpertProduct(const Shape& x, const Shape& w, const Attrs& attrs)
      : transpose_b(attrs.GetBool("transpose_b", false)),
        groups{w[0], x[0]},
        n(w[transpose_b ? 1 : 2]),
        k(w[transpose_b ? 2 : 1]) {}
  explicit ExpertProduct(const OpTypes& types)
      : ExpertProduct(types.in(0).shape, types.in(1).shape, types.attrs) {}
};

// Input i is [rows, width], f32 or bf16.
absl::Status CheckExpertRows(const OpTypes& types, size_t i, absl::string_view name);
// Input i is i32[groups + 1].
absl::Status CheckExpertStarts(const OpTypes& types, size_t i, int64_t groups);
// Input i, if there is one, is f32[groups, n].
absl::Status CheckExpertBias(const OpTypes& types, size_t i, int64_t groups, int64_t n);

// The group of a row, of groups that begin at `starts`.
int64_t ExpertOfRow(const std::vector<int32_t>& starts, int64_t row);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_EXPERT_MATMUL_SHAPE_H_
