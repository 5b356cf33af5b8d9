#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/quantize.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckInt8Matrix(types, 0, "table"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 2, "ids"));
  const absl::Span<const int64_t> ids = types.in(2).shape.dims();
  std::vector<int64_t> dims(ids.begin(), ids.end());
  dims.push_back(types.in(0).shape[1]);
  return std::vector<TensorType>{F32(Shape(dims))};
}

class EmbeddingInt8Kernel : public Kernel {
 public:
  EmbeddingInt8Kernel(const Shape& table, int64_t n)
      : rows_(table[0]), width_(table[1]), n_(n), tasks_(TaskCount(n, n * width_)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int8_t* table = static_cast<const int8_t*>(args.in[0]);
    const float* scales = args.f32(1);
    const int32_t* ids = args.i32(2);
    float* y = args.out_f32(0);
    PLUMB_RETURN_IF_ERROR(CheckIds(ids, n_, rows_));
    const int64_t groups = Int8Groups(width_);
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range range = TaskRange(n_, tasks_, i);
      for (int64_t t = range.begin; t < range.end; ++t) {
        DequantizeInt8(table + ids[t] * width_, scales + ids[t] * groups, 1, width_,
                       y + t * width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t rows_, width_, n_, tasks_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return std::make_unique<EmbeddingInt8Kernel>(types.in(0).shape, types.in(2).num_elements());
}

absl::Status Reference(const ReferenceArgs& args) {
  const std::vector<int32_t>&table = args.i(0), &ids = args.i(2);
  const int64_t width = args.shape(0)[1], group = Int8GroupSize(width);
  PLUMB_RETURN_IF_ERROR(CheckIds(ids.data(), static_cast<int64_t>(ids.size()), args.shape(0)[0]));
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = ids[t] * width + j;
      args.out(0)[t * width + j] = table[at] * args.f(1)[at / group];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterEmbeddingInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "embedding_int8";
  op.min_inputs = op.max_inputs = 3;
  op.infer = Infer;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));
}

}  // namespace plumb
