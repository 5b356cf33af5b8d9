// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/sum_rows.h"

namespace plumb {
namespace {

// embedding

absl::StatusOr<std::vector<TensorType>> InferEmbedding(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "table"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "ids"));
  if (types.in(0).shape.rank() != 2) {
    return absl::InvalidArgumentError("table must be [vocabulary, width]");
  }
  PLUMB_RETURN_IF_ERROR(CheckRowOffset(types.attrs, types.in(0).shape[0]));
  const absl::Span<const int64_t> ids = types.in(1).shape.dims();
  std::vector<int64_t> dims(ids.begin(), ids.end());
  dims.push_back(types.in(0).shape[1]);
  const bool f32_out = types.attrs.GetBool("f32_out", false);
  return std::vector<TensorType>{{f32_out ? DType::kF32 : types.in(0).dtype, Shape(dims)}};
}

// y_t = table[offset + ids_t], so
//   dL/dtable[offset + v] = sum over t with ids_t = v of dL/dy_t.
std::vector<ValueId> VjpEmbedding(GraphBuilder& b, const Node& node,
                                  absl::Span<const ValueId> d_outputs,
                                  const std::vector<bool>& wanted) {
  if (!wanted[0]) return {kNoValue, kNoValue};
  Attrs attrs = {{"rows", b.type(node.inputs[0]).shape[0]}};
  if (const int64_t offset = RowOffset(node.attrs); offset > 0) attrs.Set("offset", offset);
  return {b.Apply("embedding_grad", {node.inputs[1], d_outputs[0]}, std::move(attrs)), kNoValue};
}

class EmbeddingKernel : public Kernel {
 public:
  explicit EmbeddingKernel(const OpTypes& types)
      : offset_(RowOffset(types.attrs)),
        rows_(types.in(0).shape[0] - offset_),
        width_(types.in(0).shape[1]),
        row_bytes_(width_ * SizeOf(types.in(0).dtype)),
        widens_(types.out(0).dtype != types.in(0).dtype),
        n_(types.in(1).num_elements()),
        tasks_(TaskCount(n_, n_ * width_)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const char* table = static_cast<const char*>(args.in[0]) + offset_ * row_bytes_;
    const uint16_t* bf16 = reinterpret_cast<const uint16_t*>(table);
    const int32_t* ids = args.i32(1);
    char* y = static_cast<char*>(args.out[0]);
    PLUMB_RETURN_IF_ERROR(CheckIds(ids, n_, rows_));
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range range = TaskRange(n_, tasks_, i);
      for (int64_t t = range.begin; widens_ && t < range.end; ++t) {
        std::transform(bf16 + ids[t] * width_, bf16 + (ids[t] + 1) * width_,
                       args.out_f32(0) + t * width_, FloatFromBf16);
      }
      for (int64_t t = range.begin; !widens_ && t < range.end; ++t) {
        std::memcpy(y + t * row_bytes_, table + ids[t] * row_bytes_,
                    static_cast<size_t>(row_bytes_));
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t offset_, rows_, width_, row_bytes_;  // rows_: those after the offset
  bool widens_;
  int64_t n_, tasks_;
};

absl::Status ReferenceEmbedding(const ReferenceArgs& args) {
  const std::vector<int32_t>& ids = args.i(1);
  const int64_t width = args.shape(0)[1], offset = RowOffset(args.attrs);
  PLUMB_RETURN_IF_ERROR(
      CheckIds(ids.data(), static_cast<int64_t>(ids.size()), args.shape(0)[0] - offset));
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t j = 0; j < width; ++j) {
      args.out(0)[t * width + j] = args.f(0)[(offset + ids[t]) * width + j];
    }
  }
  return absl::OkStatus();
}

// embedding_grad. `acc`, another part of the table's gradient (tied weights), saves zeroing the
// table and an addition of two of them.

absl::StatusOr<std::vector<TensorType>> InferEmbeddingGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 0, "ids"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "dy"));
  if (types.in(1).shape.rows() != types.in(0).num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("dy must have one row for each of the ",
                                                   types.in(0).num_elements(), " ids, not ",
                                                   types.in(1).shape.rows()));
  }
  if (types.attrs.GetInt("rows") < 1) return absl::InvalidArgumentError("rows must be positive");
  PLUMB_RETURN_IF_ERROR(CheckRowOffset(types.attrs, types.attrs.GetInt("rows")));
  const TensorType table = F32({types.attrs.GetInt("rows"), types.in(1).shape.last()});
  if (types.has(2) && types.in(2) != table) {
    return absl::InvalidArgumentError(absl::StrCat("acc is ", types.in(2).ToString(),
                                                   ", must be the table's gradient so far, ",
                                                   table.ToString()));
  }
  return std::vector<TensorType>{table};
}

// Tokens repeat, so two tasks must not add to one row: each task owns a range of columns and walks
// all ids, in order. If the result is in acc's memory, only rows of tokens that occur are accessed.
class EmbeddingGradKernel : public Kernel {
 public:
  explicit EmbeddingGradKernel(const OpTypes& types)
      : rows_(types.attrs.GetInt("rows")),
        offset_(RowOffset(types.attrs)),
        width_(types.in(1).shape.last()),
        element_bytes_(SizeOf(types.in(1).dtype)),
        n_(types.in(0).num_elements()),
        has_acc_(types.has(2)),
        start_tasks_(TaskCount(rows_, rows_ * width_)),
        // Column tasks read rows produced on other cores, so only large inputs are split.
        add_tasks_(TaskCount(CeilDiv(width_, kLineElements), n_ * width_ / 4)),
        add_(SelectSumRows(types.in(1).dtype).add) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* ids = args.i32(0);
    const char* dy = static_cast<const char*>(args.in[1]);
    float* dtable = args.out_f32(0);
    PLUMB_RETURN_IF_ERROR(CheckIds(ids, n_, rows_ - offset_));
    const float* acc = has_acc_ ? args.f32(2) : nullptr;
    if (acc != dtable) Start(acc, dtable, args.threads);
    ParallelFor(add_tasks_, args.threads, [&](int64_t i) {
      const Range lines = TaskRange(CeilDiv(width_, kLineElements), add_tasks_, i);
      const int64_t begin = lines.begin * kLineElements,
                    end = std::min(width_, lines.end * kLineElements);
      for (int64_t t = 0; t < n_; ++t) {
        add_(dy + (t * width_ + begin) * element_bytes_, 1, end - begin, width_,
             dtable + (offset_ + ids[t]) * width_ + begin);
      }
    });
    return absl::OkStatus();
  }

 private:
  // Initializes the sums with acc, or zeros.
  void Start(const float* acc, float* dtable, int threads) const {
    ParallelFor(start_tasks_, threads, [&](int64_t i) {
      const Range range = TaskRange(rows_, start_tasks_, i);
      const int64_t at = range.begin * width_;
      const size_t bytes = static_cast<size_t>((range.end - range.begin) * width_) * sizeof(float);
      if (acc != nullptr) {
        std::memcpy(dtable + at, acc + at, bytes);
      } else {
        std::memset(dtable + at, 0, bytes);
      }
    });
  }

  static constexpr int64_t kLineElements = 32;  // whole cache lines of f32 and of bf16
  int64_t rows_, offset_, width_, element_bytes_, n_;
  bool has_acc_;
  int64_t start_tasks_, add_tasks_;
  decltype(SumRowsFns::add) add_;
};

absl::Status ReferenceEmbeddingGrad(const ReferenceArgs& args) {
  const std::vector<int32_t>& ids = args.i(0);
  const int64_t width = args.shape(1).last(), offset = RowOffset(args.attrs);
  PLUMB_RETURN_IF_ERROR(
      CheckIds(ids.data(), static_cast<int64_t>(ids.size()), args.attrs.GetInt("rows") - offset));
  if (args.has(2)) args.out(0) = args.f(2);
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t j = 0; j < width; ++j) {
      args.out(0)[(offset + ids[t]) * width + j] += args.f(1)[t * width + j];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterEmbedding(OpRegistry* registry) {
  OpDef op;
  op.name = "embedding";
  op.min_inputs = op.max_inputs = 2;
  op.infer = InferEmbedding;
  op.vjp = VjpEmbedding;
  op.make_kernel = MakeKernel<EmbeddingKernel>;
  op.reference = ReferenceEmbedding;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{1}; };
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "embedding_grad";
  grad.min_inputs = 2;
  grad.max_inputs = 3;
  grad.may_alias = {{0, 2}};
  grad.infer = InferEmbeddingGrad;
  grad.make_kernel = MakeKernel<EmbeddingGradKernel>;
  grad.reference = ReferenceEmbeddingGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
