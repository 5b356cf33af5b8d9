// SPDX-License-Identifier: Apache-2.0
// Shapes of matrix products, including those of experts: the checks that matmul, its fused forms
// and expert_matmul share, and the kernel of matmul and its fused forms. Pure.
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

  // Returns the result's shape, with a's leading dimensions unless `a` is transposed.
  Shape Result(const Shape& a) const { return transpose_a ? Shape({m, n}) : a.WithLast(n); }
};

// Fails unless inputs `a` and `b` are both f32 or both bf16 and have the same inner size.
absl::Status CheckProduct(const OpTypes& types, size_t a, size_t b);
// Fails unless input i is absent or f32[n].
absl::Status CheckBias(const OpTypes& types, size_t i, int64_t n);

// Implements OpDef::token_wise for products whose other operands have no tokens: input 0, the left
// operand, unless it is transposed.
std::vector<size_t> LeftTokenWise(const OpTypes& types);

// Returns the shape of the product of inputs `a` and `b`.
GemmTerm MakeTerm(const OpTypes& types, size_t a, size_t b);
// Returns a specification of products of these inputs, with the dtype of output 0, and without
// results.
GemmSpec MakeSpec(const OpTypes& types, size_t a, size_t b);
// Returns a specification of the product of inputs 0 and 1. Its bias is input 2 if `may_have_bias`.
GemmSpec OneProduct(const OpTypes& types, bool may_have_bias);

// Adds the product of inputs `a` and `b` to `sums`, [m, n].
void AddReferenceProduct(const ReferenceArgs& args, size_t a, size_t b, std::vector<double>* sums);
// Adds input i, if it is present, to every row of `sums`.
void AddReferenceBias(const ReferenceArgs& args, size_t i, std::vector<double>* sums);

// Returns the kernel of matmul and its fused forms: a GEMV for few rows, else a GEMM.
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

// Fails unless input i is [rows, width], f32 or bf16.
absl::Status CheckExpertRows(const OpTypes& types, size_t i, absl::string_view name);
// Fails unless input i is i32[groups + 1].
absl::Status CheckExpertStarts(const OpTypes& types, size_t i, int64_t groups);
// Fails unless input i is absent or f32[groups, n].
absl::Status CheckExpertBias(const OpTypes& types, size_t i, int64_t groups, int64_t n);

// Returns the group of a row; the groups begin at `starts`.
int64_t ExpertOfRow(const std::vector<int32_t>& starts, int64_t row);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATMUL_SHAPE_H_
