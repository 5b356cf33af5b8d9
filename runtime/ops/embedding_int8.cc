// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> InferEmbeddingInt8(const OpTypes& types) {
  const int64_t rows = types.attrs.GetInt("rows"), width = types.attrs.GetInt("width");
  PLUMB_RETURN_IF_ERROR(CheckInt8Matrix(types, 0, "table", rows, width));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 2, "ids"));
  PLUMB_RETURN_IF_ERROR(CheckRowOffset(types.attrs, rows));
  const absl::Span<const int64_t> ids = types.in(2).shape.dims();
  std::vector<int64_t> dims(ids.begin(), ids.end());
  dims.push_back(width);
  return std::vector<TensorType>{F32(Shape(dims))};
}

class EmbeddingInt8Kernel : public Kernel {
 public:
  explicit EmbeddingInt8Kernel(const OpTypes& types)
      : rows_(types.attrs.GetInt("rows")),
        offset_(RowOffset(types.attrs)),
        width_(types.attrs.GetInt("width")),
        n_(types.in(2).num_elements()),
        tasks_(TaskCount(n_, n_ * width_)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int8_t* table = static_cast<const int8_t*>(args.in[0]);
    const float* scales = args.f32(1);
    const int32_t* ids = args.i32(2);
    float* y = args.out_f32(0);
    PLUMB_RETURN_IF_ERROR(CheckIds(ids, n_, rows_ - offset_));
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range range = TaskRange(n_, tasks_, i);
      for (int64_t t = range.begin; t < range.end; ++t) {
        ReadInt8Row(table, scales, offset_ + ids[t], width_, y + t * width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t rows_, offset_, width_, n_, tasks_;
};

absl::Status ReferenceEmbeddingInt8(const ReferenceArgs& args) {
  const std::vector<int32_t>&table = args.i(0), &ids = args.i(2);
  const int64_t rows = args.attrs.GetInt("rows"), width = args.attrs.GetInt("width");
  const int64_t groups = Int8Groups(width), offset = RowOffset(args.attrs);
  PLUMB_RETURN_IF_ERROR(CheckIds(ids.data(), static_cast<int64_t>(ids.size()), rows - offset));
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t i = 0; i < width; ++i) {
      args.out(0)[t * width + i] = table[Int8ElementAt(offset + ids[t], i, groups)] *
                                   args.f(1)[Int8ScaleAt(offset + ids[t], i, groups)];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterEmbeddingInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "embedding_int8";
  op.min_inputs = op.max_inputs = 3;
  op.infer = InferEmbeddingInt8;
  op.make_kernel = MakeKernel<EmbeddingInt8Kernel>;
  op.reference = ReferenceEmbeddingInt8;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{2}; };
  registry->Add(std::move(op));
}

}  // namespace plumb
