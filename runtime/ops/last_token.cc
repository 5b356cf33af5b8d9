// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferLastToken(const OpTypes& types) {
  if (types.has(0) && types.in(0).dtype == DType::kI32) {
    PLUMB_RETURN_IF_ERROR(CheckI32(types, 0, "x"));
    const Shape& x = types.in(0).shape;
    if (x.rank() != 2) return absl::InvalidArgumentError("ids x must be [batch, tokens]");
    return std::vector<TensorType>{I32({x[0], 1})};
  }
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  const Shape& x = types.in(0).shape;
  if (x.rank() != 3) return absl::InvalidArgumentError("x must be [batch, tokens, width]");
  return std::vector<TensorType>{{types.in(0).dtype, Shape({x[0], 1, x[2]})}};
}

class LastTokenKernel : public Kernel {
 public:
  explicit LastTokenKernel(const OpTypes& types)
      : batch_(types.in(0).shape[0]),
        tokens_(types.in(0).shape[1]),
        row_bytes_(types.in(0).bytes() / (batch_ * tokens_)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const char* x = static_cast<const char*>(args.in[0]);
    char* y = static_cast<char*>(args.out[0]);
    for (int64_t b = 0; b < batch_; ++b) {
      std::memcpy(y + b * row_bytes_, x + ((b + 1) * tokens_ - 1) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    }
    return absl::OkStatus();
  }

 private:
  int64_t batch_, tokens_, row_bytes_;
};

template <class T>
void CopyLast(const Shape& shape, const std::vector<T>& x, std::vector<T>* y) {
  const int64_t batch = shape[0], tokens = shape[1];
  const int64_t width = shape.num_elements() / (batch * tokens);
  for (int64_t b = 0; b < batch; ++b) {
    std::copy_n(x.begin() + ((b + 1) * tokens - 1) * width, width, y->begin() + b * width);
  }
}

absl::Status ReferenceLastToken(const ReferenceArgs& args) {
  if (args.inputs[0]->type.dtype == DType::kI32) {
    CopyLast(args.shape(0), args.i(0), &args.outputs[0]->i);
  } else {
    CopyLast(args.shape(0), args.f(0), &args.outputs[0]->f);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterLastToken(OpRegistry* registry) {
  OpDef op;
  op.name = "last_token";
  op.min_inputs = op.max_inputs = 1;
  op.infer = InferLastToken;
  op.make_kernel = MakeKernel<LastTokenKernel>;
  op.reference = ReferenceLastToken;
  registry->Add(std::move(op));
}

}  // namespace plumb
