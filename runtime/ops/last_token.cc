#include <cstring>

#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  const Shape& x = types.in(0).shape;
  if (x.rank() != 3) return absl::InvalidArgumentError("x must be [batch, tokens, width]");
  return std::vector<TensorType>{{types.in(0).dtype, Shape({x[0], 1, x[2]})}};
}

class LastTokenKernel : public Kernel {
 public:
  explicit LastTokenKernel(const TensorType& x)
      : batch_(x.shape[0]), tokens_(x.shape[1]), row_bytes_(x.shape[2] * SizeOf(x.dtype)) {}

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

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return std::make_unique<LastTokenKernel>(types.in(0));
}

absl::Status Reference(const ReferenceArgs& args) {
  const int64_t batch = args.shape(0)[0], tokens = args.shape(0)[1], width = args.shape(0)[2];
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t j = 0; j < width; ++j) {
      args.out(0)[b * width + j] = args.f(0)[(b * tokens + tokens - 1) * width + j];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterLastToken(OpRegistry* registry) {
  OpDef op;
  op.name = "last_token";
  op.min_inputs = op.max_inputs = 1;
  op.infer = Infer;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));
}

}  // namespace plumb
