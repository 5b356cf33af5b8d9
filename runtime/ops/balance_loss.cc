// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/route.h"

// The load-balancing loss of Switch Transformer (Fedus et al. 2021, equation 4), for any number of
// experts per token:
//   L = c E sum_e f_e P_e,
// where f_e is the share of the assignments that expert e got, and P_e the mean of
// softmax(logits)_e over the tokens. It is c if all experts get the same share.

namespace plumb {
namespace {

absl::Status CheckBalance(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "logits"));
  return CheckExpertStarts(types, 1, types.in(0).shape.last());
}

absl::StatusOr<std::vector<TensorType>> InferBalanceLoss(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckBalance(types));
  return std::vector<TensorType>{F32({1})};
}

absl::StatusOr<std::vector<TensorType>> InferBalanceLossGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckBalance(types));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 2, "dloss"));
  return std::vector<TensorType>{types.in(0)};
}

// With s_t = sum_e f_e p_te of token t, L = c E / T sum_t s_t. f is constant, so the gradient of a
// logit is
//   dL/dl_te = c E / T p_te (f_e - s_t).
std::vector<ValueId> VjpBalanceLoss(GraphBuilder& b, const Node& node,
                                    absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  return {b.Apply("balance_loss_grad", {node.inputs[0], node.inputs[1], d_outputs[0]}, node.attrs),
          kNoValue};
}

// Processes one row: sets p to softmax(logits), and returns s_t.
template <class T>
T ComputeBalance(const T* logits, const int32_t* starts, int64_t experts, T* p) {
  ComputeSoftmax(logits, experts, p);
  T sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += static_cast<T>(starts[e + 1] - starts[e]) * p[e];
  return sum / static_cast<T>(starts[experts]);
}

class BalanceKernel : public Kernel {
 public:
  explicit BalanceKernel(const OpTypes& types)
      : rows_(types.in(0).shape.rows()),
        experts_(types.in(0).shape.last()),
        tasks_(TaskCount(rows_, rows_ * experts_ * kCost)),
        bf16_(types.in(0).dtype == DType::kBF16),
        factor_(types.attrs.GetDouble("coefficient") * static_cast<double>(experts_) /
                static_cast<double>(rows_)) {}

  // Returns the bytes of a row of floats per task, then a sum per task.
  int64_t scratch_bytes() const override { return tasks_ * row_bytes() + sums_bytes(); }

 protected:
  float* Row(const KernelArgs& args, int64_t task) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + task * row_bytes());
  }
  double* Sums(const KernelArgs& args) const {
    return reinterpret_cast<double*>(static_cast<char*>(args.scratch) + tasks_ * row_bytes());
  }
  float Balance(const KernelArgs& args, int64_t row, float* p) const {
    if (bf16_) {
      const uint16_t* const logits = args.bf16(0) + row * experts_;
      std::transform(logits, logits + experts_, p, FloatFromBf16);
    } else {
      std::copy_n(args.f32(0) + row * experts_, experts_, p);
    }
    return ComputeBalance(p, args.i32(1), experts_, p);
  }

  static constexpr int64_t kCost = 32;  // scalar operations per element, approximately
  const int64_t rows_, experts_, tasks_;
  const bool bf16_;
  const double factor_;

 private:
  int64_t row_bytes() const { return AlignUp(experts_ * SizeOf(DType::kF32)); }
  int64_t sums_bytes() const { return AlignUp(tasks_ * static_cast<int64_t>(sizeof(double))); }
};

class BalanceLossKernel : public BalanceKernel {
 public:
  using BalanceKernel::BalanceKernel;

  absl::Status Run(const KernelArgs& args) const override {
    double* const sums = Sums(args);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range rows = TaskRange(rows_, tasks_, task);
      sums[task] = 0;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        sums[task] += static_cast<double>(Balance(args, row, Row(args, task)));
      }
    });
    double sum = 0;
    for (int64_t task = 0; task < tasks_; ++task) sum += sums[task];
    *args.out_f32(0) = static_cast<float>(factor_ * sum);
    return absl::OkStatus();
  }
};

class BalanceLossGradKernel : public BalanceKernel {
 public:
  using BalanceKernel::BalanceKernel;

  absl::Status Run(const KernelArgs& args) const override {
    const float factor = static_cast<float>(factor_) * *args.f32(2);
    const int32_t* const starts = args.i32(1);
    const float assignments = static_cast<float>(starts[experts_]);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      float* const p = Row(args, task);
      const Range rows = TaskRange(rows_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float balance = Balance(args, row, p);
        for (int64_t e = 0; e < experts_; ++e) {
          const float share = static_cast<float>(starts[e + 1] - starts[e]) / assignments;
          const float gradient = factor * p[e] * (share - balance);
          if (bf16_) {
            args.out_bf16(0)[row * experts_ + e] = Bf16FromFloat(gradient);
          } else {
            args.out_f32(0)[row * experts_ + e] = gradient;
          }
        }
      }
    });
    return absl::OkStatus();
  }
};

absl::Status ReferenceBalanceLoss(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), experts = args.shape(0).last();
  std::vector<double> p(static_cast<size_t>(experts));
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) {
    sum += ComputeBalance(args.f(0).data() + row * experts, args.i(1).data(), experts, p.data());
  }
  args.out(0)[0] = args.attrs.GetDouble("coefficient") * static_cast<double>(experts) * sum /
                   static_cast<double>(rows);
  return absl::OkStatus();
}

absl::Status ReferenceBalanceLossGrad(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), experts = args.shape(0).last();
  const std::vector<int32_t>& starts = args.i(1);
  const double factor = args.attrs.GetDouble("coefficient") * static_cast<double>(experts) /
                        static_cast<double>(rows) * args.f(2)[0];
  std::vector<double> p(static_cast<size_t>(experts));
  for (int64_t row = 0; row < rows; ++row) {
    const double balance =
        ComputeBalance(args.f(0).data() + row * experts, starts.data(), experts, p.data());
    for (size_t e = 0; e < p.size(); ++e) {
      const double share = static_cast<double>(starts[e + 1] - starts[e]) / starts.back();
      args.out(0)[static_cast<size_t>(row * experts) + e] = factor * p[e] * (share - balance);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> InferExpertLoad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "load"));
  if (types.in(0).shape.rank() != 1) return absl::InvalidArgumentError("load must be f32[E]");
  PLUMB_RETURN_IF_ERROR(CheckExpertStarts(types, 1, types.in(0).shape.last()));
  return std::vector<TensorType>{types.in(0)};
}

class ExpertLoadKernel : public Kernel {
 public:
  explicit ExpertLoadKernel(const OpTypes& types) : experts_(types.in(0).shape.last()) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* const starts = args.i32(1);
    for (int64_t e = 0; e < experts_; ++e) {
      args.out_f32(0)[e] = args.f32(0)[e] + static_cast<float>(starts[e + 1] - starts[e]);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t experts_;
};

absl::Status ReferenceExpertLoad(const ReferenceArgs& args) {
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    args.out(0)[e] = args.f(0)[e] + args.i(1)[e + 1] - args.i(1)[e];
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterBalanceLoss(OpRegistry* registry) {
  OpDef op;
  op.name = "balance_loss";
  op.min_inputs = op.max_inputs = 2;
  op.infer = InferBalanceLoss;
  op.vjp = VjpBalanceLoss;
  op.make_kernel = MakeKernel<BalanceLossKernel>;
  op.reference = ReferenceBalanceLoss;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "balance_loss_grad";
  grad.min_inputs = grad.max_inputs = 3;
  grad.infer = InferBalanceLossGrad;
  grad.make_kernel = MakeKernel<BalanceLossGradKernel>;
  grad.reference = ReferenceBalanceLossGrad;
  registry->Add(std::move(grad));

  OpDef load;
  load.name = "expert_load";
  load.min_inputs = load.max_inputs = 2;
  load.updates = {{0, 0}};
  load.infer = InferExpertLoad;
  load.make_kernel = MakeKernel<ExpertLoadKernel>;
  load.reference = ReferenceExpertLoad;
  registry->Add(std::move(load));
}

}  // namespace plumb
