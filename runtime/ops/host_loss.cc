// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/host_loss.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferHostLoss(const OpTypes& types) {
  if (types.in(0).dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits are ", types.in(0).ToString(), ", must be f32"));
  }
  if (types.in(1) != I32({kHostLossWords})) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss is ", types.in(1).ToString(), ", must be i32[", kHostLossWords, "]"));
  }
  return std::vector<TensorType>{F32({1}), types.in(0)};
}

// The op computes dloss/dlogits, g, in the forward pass, so dL/dlogits = dL/dloss g. g has no
// gradient: nothing else reads it.
std::vector<ValueId> VjpHostLoss(GraphBuilder& b, const Node& node,
                                 absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  return {b.Apply("mul", {node.outputs[1], d_outputs[0]}), kNoValue};
}

absl::StatusOr<double> CallHost(const int32_t* operand, const float* logits, float* gradient) {
  const HostLoss* loss = nullptr;
  std::memcpy(&loss, operand, sizeof(loss));
  const ScopedDefaultFloatMode float_mode;
  return (*loss)(logits, gradient);
}

class HostLossKernel : public Kernel {
 public:
  explicit HostLossKernel(const OpTypes& types) : elements_(types.in(0).num_elements()) {}

  absl::Status Run(const KernelArgs& args) const override {
    std::fill_n(args.out_f32(1), elements_, 0.0f);
    PLUMB_ASSIGN_OR_RETURN(const double loss, CallHost(args.i32(1), args.f32(0), args.out_f32(1)));
    args.out_f32(0)[0] = static_cast<float>(loss);
    return absl::OkStatus();
  }

 private:
  const int64_t elements_;
};

absl::Status ReferenceHostLoss(const ReferenceArgs& args) {
  const std::vector<float> logits(args.f(0).begin(), args.f(0).end());
  std::vector<float> gradient(logits.size());
  PLUMB_ASSIGN_OR_RETURN(args.out(0)[0],
                         CallHost(args.i(1).data(), logits.data(), gradient.data()));
  args.out(1).assign(gradient.begin(), gradient.end());
  return absl::OkStatus();
}

}  // namespace

void RegisterHostLoss(OpRegistry* registry) {
  OpDef op;
  op.name = "host_loss";
  op.min_inputs = op.max_inputs = 2;
  op.infer = InferHostLoss;
  op.vjp = VjpHostLoss;
  op.make_kernel = MakeKernel<HostLossKernel>;
  op.reference = ReferenceHostLoss;
  registry->Add(std::move(op));
}

}  // namespace plumb
