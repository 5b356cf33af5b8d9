// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

// Softmax over the parts of a row, for weights of layers or streams: a few numbers a token, so
// plain code.

namespace plumb {
namespace {

constexpr int64_t kCost = 32;  // scalar operations an element, roughly

float Load(const void* from, int64_t i, bool bf16) {
  return bf16 ? FloatFromBf16(static_cast<const uint16_t*>(from)[i])
              : static_cast<const float*>(from)[i];
}
void Store(float value, void* to, int64_t i, bool bf16) {
  if (bf16) {
    static_cast<uint16_t*>(to)[i] = Bf16FromFloat(value);
  } else {
    static_cast<float*>(to)[i] = value;
  }
}

absl::Status CheckParts(const OpTypes& types) {
  const int64_t n = types.attrs.GetInt("parts");
  if (n >= 1 && types.in(0).shape.last() % n == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parts must divide ", types.in(0).shape.last()));
}

// A kernel on lanes: element i of each of n parts of a row, `stride` apart.
class LanesKernel : public Kernel {
 public:
  explicit LanesKernel(const OpTypes& types)
      : rows_(types.in(0).shape.rows()),
        n_(types.attrs.GetInt("parts")),
        stride_(types.in(0).shape.last() / n_),
        tasks_(TaskCount(rows_, rows_ * n_ * stride_ * kCost)),
        bf16_(types.in(0).dtype == DType::kBF16) {}

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range rows = TaskRange(rows_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t lane = 0; lane < stride_; ++lane) {
          RunLane(args, row * n_ * stride_ + lane);
        }
      }
    });
    return absl::OkStatus();
  }

 protected:
  // Its elements are first, first + stride_, ..: n_ of them.
  virtual void RunLane(const KernelArgs& args, int64_t first) const = 0;

  int64_t rows_, n_, stride_, tasks_;
  bool bf16_;
};

class SoftmaxKernel : public LanesKernel {
 public:
  using LanesKernel::LanesKernel;

 protected:
  void RunLane(const KernelArgs& args, int64_t first) const override {
    float highest = Load(args.in[0], first, bf16_), total = 0;
    for (int64_t k = 1; k < n_; ++k) {
      highest = std::max(highest, Load(args.in[0], first + k * stride_, bf16_));
    }
    for (int64_t k = 0; k < n_; ++k) {
      total += std::exp(Load(args.in[0], first + k * stride_, bf16_) - highest);
    }
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t i = first + k * stride_;
      Store(std::exp(Load(args.in[0], i, bf16_) - highest) / total, args.out[0], i, bf16_);
    }
  }
};

class SoftmaxGradKernel : public LanesKernel {
 public:
  using LanesKernel::LanesKernel;

 protected:
  void RunLane(const KernelArgs& args, int64_t first) const override {
    float dot = 0;
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t i = first + k * stride_;
      dot += Load(args.in[0], i, bf16_) * Load(args.in[1], i, bf16_);
    }
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t i = first + k * stride_;
      const float dx = Load(args.in[0], i, bf16_) * (Load(args.in[1], i, bf16_) - dot);
      Store(dx, args.out[0], i, bf16_);
    }
  }
};

// softmax

absl::StatusOr<std::vector<TensorType>> InferSoftmax(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckParts(types));
  return std::vector<TensorType>{types.in(0)};
}

// y_k = e^x_k / sum_m e^x_m, so
//   dL/dx_k = y_k (dL/dy_k - sum_m y_m dL/dy_m).
std::vector<ValueId> VjpSoftmax(GraphBuilder& b, const Node& node,
                                absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  return {b.Apply("softmax_grad", {node.outputs[0], d_outputs[0]}, node.attrs)};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeSoftmaxKernel(const OpTypes& types) {
  return std::make_unique<SoftmaxKernel>(types);
}

absl::Status ReferenceSoftmax(const ReferenceArgs& args) {
  const int64_t n = args.attrs.GetInt("parts"), width = args.shape(0).last() / n;
  for (size_t e = 0; e < args.f(0).size(); ++e) {
    const size_t row = e / static_cast<size_t>(n * width) * static_cast<size_t>(n * width);
    double total = 0;
    for (int64_t k = 0; k < n; ++k) {
      const size_t other = row + static_cast<size_t>(k * width) + e % static_cast<size_t>(width);
      total += std::exp(args.f(0)[other] - args.f(0)[e]);
    }
    args.out(0)[e] = 1 / total;
  }
  return absl::OkStatus();
}

// softmax_grad

absl::StatusOr<std::vector<TensorType>> InferSoftmaxGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "y"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "dy"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "y", 1, "dy"));
  PLUMB_RETURN_IF_ERROR(CheckParts(types));
  return std::vector<TensorType>{types.in(0)};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeSoftmaxGradKernel(const OpTypes& types) {
  return std::make_unique<SoftmaxGradKernel>(types);
}

absl::Status ReferenceSoftmaxGrad(const ReferenceArgs& args) {
  const int64_t n = args.attrs.GetInt("parts"), width = args.shape(0).last() / n;
  for (size_t e = 0; e < args.f(0).size(); ++e) {
    const size_t row = e / static_cast<size_t>(n * width) * static_cast<size_t>(n * width);
    double dot = 0;
    for (int64_t k = 0; k < n; ++k) {
      const size_t other = row + static_cast<size_t>(k * width) + e % static_cast<size_t>(width);
      dot += args.f(0)[other] * args.f(1)[other];
    }
    args.out(0)[e] = args.f(0)[e] * (args.f(1)[e] - dot);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterSoftmax(OpRegistry* registry) {
  OpDef softmax;
  softmax.name = "softmax";
  softmax.min_inputs = softmax.max_inputs = 1;
  softmax.may_alias = {};
  softmax.infer = InferSoftmax;
  softmax.vjp = VjpSoftmax;
  softmax.make_kernel = MakeSoftmaxKernel;
  softmax.reference = ReferenceSoftmax;
  softmax.token_wise = InputsWithRows;
  registry->Add(std::move(softmax));

  OpDef grad;
  grad.name = "softmax_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.infer = InferSoftmaxGrad;
  grad.make_kernel = MakeSoftmaxGradKernel;
  grad.reference = ReferenceSoftmaxGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
