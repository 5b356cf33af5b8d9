// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/gemm/grouped_gemm.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/route.h"
#include "runtime/ops/sum_rows.h"

// Products of rows, grouped by expert, with the matrix of each row's expert.

namespace plumb {
namespace {

// expert_matmul

absl::StatusOr<std::vector<TensorType>> InferExpertMatmul(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "w"));
  const TensorType& x = types.in(0);
  const TensorType& w = types.in(1);
  if (w.shape.rank() != 3 || w.dtype != x.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("w must be [experts, rows, columns] of ", DTypeName(x.dtype)));
  }
  const ExpertProduct product(types);
  if (product.k != x.shape[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("inner sizes differ: ", x.shape[1], " and ", product.k));
  }
  PLUMB_RETURN_IF_ERROR(CheckExpertStarts(types, 2, product.groups.groups));
  PLUMB_RETURN_IF_ERROR(CheckExpertBias(types, 3, product.groups.groups, product.n));
  return std::vector<TensorType>{{x.dtype, Shape({product.groups.rows, product.n})}};
}

// For the rows i of expert e, y_i = x_i W_e' + c_e with W' = op(W). With G = dL/dY,
//   dL/dx_i = G_i W_e'^T,  dL/dW_e' = sum over i of x_i^T G_i,  dL/dc_e = sum over i of G_i,
// and dL/dW_e is dL/dW_e' or, when W' is W's transpose, its transpose: sum of G_i^T x_i.
std::vector<ValueId> VjpExpertMatmul(GraphBuilder& b, const Node& node,
                                     absl::Span<const ValueId> d_outputs,
                                     const std::vector<bool>& wanted) {
  const ValueId x = node.inputs[0], w = node.inputs[1], starts = node.inputs[2], dy = d_outputs[0];
  const bool transposed = node.attrs.GetBool("transpose_b", false);
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    Attrs attrs;
    if (!transposed) attrs.Set("transpose_b", true);
    d_inputs[0] = b.Apply("expert_matmul", {dy, w, starts}, std::move(attrs));
  }
  if (wanted[1]) {
    d_inputs[1] = b.Apply("expert_outer", {transposed ? dy : x, transposed ? x : dy, starts});
  }
  if (wanted.size() > 3 && wanted[3]) d_inputs[3] = b.Apply("expert_sum", {dy, starts});
  return d_inputs;
}

class ExpertMatmulKernel : public Kernel {
 public:
  ExpertMatmulKernel(const OpTypes& types, const GemmPolicy& policy)
      : product_(types),
        has_bias_(types.has(3)),
        gemm_(product_.groups, product_.n, product_.k, product_.transpose_b, types.in(0).dtype,
              types.out(0).dtype, policy) {}

  int64_t scratch_bytes() const override { return gemm_.scratch_bytes(); }
  absl::Status Run(const KernelArgs& args) const override {
    PLUMB_RETURN_IF_ERROR(CheckStarts(args.i32(2), product_.groups.groups, product_.groups.rows));
    return gemm_.Run(
        {args.in[0], args.in[1], has_bias_ ? args.f32(3) : nullptr, args.i32(2), args.out[0]},
        args.scratch, args.threads);
  }
  std::string ToString() const override { return gemm_.ToString(); }

 private:
  const ExpertProduct product_;
  const bool has_bias_;
  const GroupedGemm gemm_;
};

absl::Status ReferenceExpertMatmul(const ReferenceArgs& args) {
  const ExpertProduct p(args.shape(0), args.shape(1), args.attrs);
  for (int64_t i = 0; i < p.groups.rows; ++i) {
    const int64_t e = ExpertOfRow(args.i(2), i);
    for (int64_t j = 0; j < p.n; ++j) {
      double y = args.has(3) ? args.f(3)[static_cast<size_t>(e * p.n + j)] : 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t at = p.transpose_b ? j * p.k + l : l * p.n + j;
        y += args.f(0)[static_cast<size_t>(i * p.k + l)] *
             args.f(1)[static_cast<size_t>(e * p.n * p.k + at)];
      }
      args.out(0)[static_cast<size_t>(i * p.n + j)] = y;
    }
  }
  return absl::OkStatus();
}

double ExpertMatmulFlops(const OpTypes& types) {
  const ExpertProduct p(types);
  return 2.0 * static_cast<double>(p.groups.rows) * static_cast<double>(p.n) *
         static_cast<double>(p.k);
}

// expert_outer

absl::StatusOr<std::vector<TensorType>> InferExpertOuter(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(types, 1, "b"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 2, "starts"));
  const TensorType& a = types.in(0);
  const TensorType& b = types.in(1);
  if (a.shape[0] != b.shape[0] || a.dtype != b.dtype) {
    return absl::InvalidArgumentError("a and b must have the same rows and type");
  }
  const int64_t groups = types.in(2).num_elements() - 1;
  PLUMB_RETURN_IF_ERROR(CheckExpertStarts(types, 2, groups));
  return std::vector<TensorType>{F32({groups, a.shape[1], b.shape[1]})};
}

class ExpertOuterKernel : public Kernel {
 public:
  ExpertOuterKernel(const OpTypes& types, const GemmPolicy& policy)
      : groups_{types.in(2).num_elements() - 1, types.in(0).shape[0]},
        gemm_(groups_, types.in(0).shape[1], types.in(1).shape[1], types.in(0).dtype, policy) {}

  int64_t scratch_bytes() const override { return gemm_.scratch_bytes(); }
  absl::Status Run(const KernelArgs& args) const override {
    PLUMB_RETURN_IF_ERROR(CheckStarts(args.i32(2), groups_.groups, groups_.rows));
    return gemm_.Run(args.in[0], args.in[1], args.i32(2), args.out_f32(0), args.scratch,
                     args.threads);
  }
  std::string ToString() const override { return gemm_.ToString(); }

 private:
  const GroupedShape groups_;
  const GroupedOuterGemm gemm_;
};

absl::Status ReferenceExpertOuter(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0)[0], m = args.shape(0)[1], n = args.shape(1)[1];
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t e = ExpertOfRow(args.i(2), i);
    for (int64_t at = 0; at < m * n; ++at) {
      args.out(0)[static_cast<size_t>(e * m * n + at)] +=
          args.f(0)[static_cast<size_t>(i * m + at / n)] *
          args.f(1)[static_cast<size_t>(i * n + at % n)];
    }
  }
  return absl::OkStatus();
}

double ExpertOuterFlops(const OpTypes& types) {
  return 2.0 * static_cast<double>(types.in(0).num_elements()) *
         static_cast<double>(types.in(1).shape[1]);
}

// expert_sum

absl::StatusOr<std::vector<TensorType>> InferExpertSum(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "starts"));
  const int64_t groups = types.in(1).num_elements() - 1;
  PLUMB_RETURN_IF_ERROR(CheckExpertStarts(types, 1, groups));
  return std::vector<TensorType>{F32({groups, types.in(0).shape[1]})};
}

class ExpertSumKernel : public Kernel {
 public:
  explicit ExpertSumKernel(const OpTypes& types)
      : groups_(types.in(1).num_elements() - 1),
        rows_(types.in(0).shape[0]),
        n_(types.in(0).shape[1]),
        tasks_(TaskCount(groups_, rows_ * n_)),
        row_bytes_(n_ * SizeOf(types.in(0).dtype)),
        sum_(SelectSumRows(types.in(0).dtype).sum) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* const starts = args.i32(1);
    PLUMB_RETURN_IF_ERROR(CheckStarts(starts, groups_, rows_));
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range groups = TaskRange(groups_, tasks_, i);
      for (int64_t g = groups.begin; g < groups.end; ++g) {
        const int64_t begin = starts[g], rows = starts[g + 1] - begin;
        float* const y = args.out_f32(0) + g * n_;
        if (rows == 0) {
          std::fill_n(y, n_, 0.0f);
        } else {
          sum_(static_cast<const char*>(args.in[0]) + begin * row_bytes_, rows, n_, n_, y);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const int64_t groups_, rows_, n_, tasks_, row_bytes_;
  const decltype(SumRowsFns::sum) sum_;
};

absl::Status ReferenceExpertSum(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0)[0], n = args.shape(0)[1];
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t e = ExpertOfRow(args.i(1), i);
    for (int64_t j = 0; j < n; ++j) {
      args.out(0)[static_cast<size_t>(e * n + j)] += args.f(0)[static_cast<size_t>(i * n + j)];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterExpertMatmul(OpRegistry* registry, const GemmPolicy& policy) {
  OpDef matmul;
  matmul.name = "expert_matmul";
  matmul.min_inputs = 3;
  matmul.max_inputs = 4;
  matmul.infer = InferExpertMatmul;
  matmul.vjp = VjpExpertMatmul;
  matmul.make_kernel = [policy](const OpTypes& types) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<ExpertMatmulKernel>(types, policy);
  };
  matmul.reference = ReferenceExpertMatmul;
  matmul.flops = ExpertMatmulFlops;
  registry->Add(std::move(matmul));

  OpDef outer;
  outer.name = "expert_outer";
  outer.min_inputs = outer.max_inputs = 3;
  outer.infer = InferExpertOuter;
  outer.make_kernel = [policy](const OpTypes& types) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<ExpertOuterKernel>(types, policy);
  };
  outer.reference = ReferenceExpertOuter;
  outer.flops = ExpertOuterFlops;
  registry->Add(std::move(outer));

  OpDef sum;
  sum.name = "expert_sum";
  sum.min_inputs = sum.max_inputs = 2;
  sum.infer = InferExpertSum;
  sum.make_kernel = MakeKernel<ExpertSumKernel>;
  sum.reference = ReferenceExpertSum;
  registry->Add(std::move(sum));
}

}  // namespace plumb
