// SPDX-License-Identifier: Apache-2.0
// Shapes of matrix products, of experts' too: the checks that matmul, its fused forms and
// expert_matmul share, and the kernel of the former. Pure.
#ifndef PLUMB_RUNTIME_OPS_MATMUL_SHAPE_H_
#define PLUMB_RUNTIME_OPS_MATMUL_SHAPE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/kernels/gemm/grouped_gemm.h"

namespace plumb {

// Two operands as matrices: y[m,n] = op(a)[m,k] op(b)[k,n].
struct ProductShape {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int64_t lda, ldb;

  ProductShape(const Shape& a, const Shape& b, const Attrs& attrs)
      : transpose_a(attrs.GetBool("transpose_a", false)),
        transpose_b(attrs.GetBool("transpose_b", false)),
        m(transpose_a ? a.last() : a.rows()),
        n(transpose_b ? b.rows() : b.last()),
        k(transpose_a ? a.rows() : a.last()),
        lda(a.last()),
        ldb(b.last()) {}

  // The result's shape: a's leading dimensions are kept, where they can be.
  Shape Result(const Shape& a) const { return transpose_a ? Shape({m, n}) : a.WithLast(n); }
};

// Inputs `a` and `b` are both f32 or both bf16 and have the same inner size.
absl::Status CheckProduct(const OpTypes& types, size_t a, size_t b);
// Input i, if there is one, is f32[n].
absl::Status CheckBias(const OpTypes& types, size_t i, int64_t n);

// OpDef::token_wise of products whose left operand is input 0 and whose other operands are not of
// tokens: in that operand, unless it is transposed.
std::vector<size_t> LeftTokenWise(const OpTypes& types);

// The shape of a product, from inputs `a` and `b`.
GemmTerm TermOf(const OpTypes& types, size_t a, size_t b);
// A specification of products of these, with the result's dtype of output 0, and no results yet.
GemmSpec SpecOf(const OpTypes& types, size_t a, size_t b);

// Adds the product of inputs `a` and `b` to `sums`, [m, n].
void AddReferenceProduct(const ReferenceArgs& args, size_t a, size_t b, std::vector<double>* sums);
// Adds input i, if there is one, to every row of `sums`.
void AddReferenceBias(const ReferenceArgs& args, size_t i, std::vector<double>* sums);

// Returns the kernel of matmul and its fused forms: a GEMV where the rows are few, a GEMM
// elsewhere.
std::unique_ptr<Kernel> MakeMatmulKernel(GemmSpec spec, const GemmPolicy& policy);

// Operands of expert_matmul: x [rows, k] and w [groups, k, n] or, transposed, [groups, n, k].
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

#endif  // PLUMB_RUNTIME_OPS_MATMUL_SHAPE_H_
