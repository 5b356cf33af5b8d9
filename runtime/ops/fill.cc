// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/element_tasks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferFill(const OpTypes& types) {
  std::vector<int64_t> dims;
  for (const double dim : types.attrs.GetDoubles("dims")) {
    if (!(dim >= 1) || dim > 1e15 || dim != std::floor(dim)) {
      return absl::InvalidArgumentError(absl::StrCat("dims must be positive integers, not ", dim));
    }
    dims.push_back(static_cast<int64_t>(dim));
  }
  return std::vector<TensorType>{
      {types.attrs.GetBool("bf16", false) ? DType::kBF16 : DType::kF32, Shape(dims)}};
}

// y does not depend on anything.
std::vector<ValueId> VjpFill(GraphBuilder&, const Node&, absl::Span<const ValueId>,
                             const std::vector<bool>&) {
  return {};
}

template <class T>
class FillKernel : public Kernel {
 public:
  FillKernel(int64_t n, T value) : tasks_(n, 1), value_(value) {}

  absl::Status Run(const KernelArgs& args) const override {
    T* y = static_cast<T*>(args.out[0]);
    tasks_.Run(args.threads,
               [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value_); });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  T value_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeFillKernel(const OpTypes& types) {
  const int64_t n = types.out(0).num_elements();
  const float value = static_cast<float>(types.attrs.GetDouble("value"));
  if (types.out(0).dtype == DType::kF32) return std::make_unique<FillKernel<float>>(n, value);
  return std::make_unique<FillKernel<uint16_t>>(n, Bf16FromFloat(value));
}

absl::Status ReferenceFill(const ReferenceArgs& args) {
  for (double& y : args.out(0)) y = args.attrs.GetDouble("value");
  return absl::OkStatus();
}

}  // namespace

void RegisterFill(OpRegistry* registry) {
  OpDef op;
  op.name = "fill";
  op.infer = InferFill;
  op.vjp = VjpFill;
  op.make_kernel = MakeFillKernel;
  op.reference = ReferenceFill;
  registry->Add(std::move(op));
}

}  // namespace plumb
