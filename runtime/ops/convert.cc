// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

bool IsIds(const OpTypes& types) { return types.has(0) && types.in(0).dtype == DType::kI32; }

absl::StatusOr<std::vector<TensorType>> InferConvert(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(IsIds(types) ? CheckI32(types, 0, "x") : CheckFloat(types, 0, "x"));
  const Shape& x = types.in(0).shape;
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  if (IsIds(types)) dims.push_back(1);
  const bool bf16 = types.attrs.GetBool("bf16", false);
  return std::vector<TensorType>{{bf16 ? DType::kBF16 : DType::kF32, Shape(dims)}};
}

// y = x, so dL/dx is dL/dy, in the type of x.
std::vector<ValueId> VjpConvert(GraphBuilder& b, const Node& node,
                                absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  const DType dtype = b.type(node.inputs[0]).dtype;
  if (dtype == DType::kI32) return {kNoValue};
  return {b.Apply("convert", {d_outputs[0]}, {{"bf16", dtype == DType::kBF16}})};
}

class ConvertKernel : public Kernel {
 public:
  explicit ConvertKernel(const OpTypes& types)
      : from_(types.in(0).dtype),
        to_bf16_(types.out(0).dtype == DType::kBF16),
        size_(types.in(0).num_elements()),
        tasks_(TaskCount(size_, size_)) {}

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range elements = TaskRange(size_, tasks_, task);
      for (int64_t i = elements.begin; i < elements.end; ++i) Write(args, i, Read(args, i));
    });
    return absl::OkStatus();
  }

 private:
  float Read(const KernelArgs& args, int64_t i) const {
    if (from_ == DType::kI32) return static_cast<float>(args.i32(0)[i]);
    if (from_ == DType::kF32) return args.f32(0)[i];
    return FloatFromBf16(static_cast<const uint16_t*>(args.in[0])[i]);
  }
  void Write(const KernelArgs& args, int64_t i, float value) const {
    if (to_bf16_) {
      static_cast<uint16_t*>(args.out[0])[i] = Bf16FromFloat(value);
    } else {
      args.out_f32(0)[i] = value;
    }
  }

  const DType from_;
  const bool to_bf16_;
  const int64_t size_, tasks_;
};

absl::Status ReferenceConvert(const ReferenceArgs& args) {
  if (args.inputs[0]->type.dtype == DType::kI32) {
    args.out(0).assign(args.i(0).begin(), args.i(0).end());
  } else {
    args.out(0) = args.f(0);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterConvert(OpRegistry* registry) {
  OpDef op;
  op.name = "convert";
  op.min_inputs = op.max_inputs = 1;
  op.infer = InferConvert;
  op.vjp = VjpConvert;
  op.make_kernel = MakeKernel<ConvertKernel>;
  op.reference = ReferenceConvert;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  registry->Add(std::move(op));
}

}  // namespace plumb
