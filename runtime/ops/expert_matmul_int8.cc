// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemm/gemm_plan.h"
#include "runtime/kernels/gemm/group_tasks.h"
#include "runtime/kernels/gemv/gemv_int8.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/route.h"

namespace plumb {
namespace {

constexpr size_t kStarts = 2, kScales = 3, kBias = 4;  // operands

absl::StatusOr<std::vector<TensorType>> InferExpertMatmulInt8(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, kStarts, "starts"));
  const int64_t groups = types.in(kStarts).num_elements() - 1, n = types.attrs.GetInt("rows");
  PLUMB_RETURN_IF_ERROR(CheckExpertStarts(types, kStarts, groups));
  const Shape w = {groups, n, types.in(0).shape[1]};
  const std::pair<size_t, TensorType> wanted[] = {{1, Int8Elements(w)}, {kScales, Int8Scales(w)}};
  for (const auto& [i, type] : wanted) {
    if (types.has(i) && types.in(i) == type) continue;
    return absl::InvalidArgumentError(absl::StrCat(i == 1 ? "w" : "scales", " of matrices ",
                                                   w.ToString(), " must be ", type.ToString()));
  }
  PLUMB_RETURN_IF_ERROR(CheckExpertBias(types, kBias, groups, n));
  return std::vector<TensorType>{F32({types.in(0).shape[0], n})};
}

class ExpertMatmulInt8Kernel : public Kernel {
 public:
  explicit ExpertMatmulInt8Kernel(const OpTypes& types)
      : groups_(types.in(kStarts).num_elements() - 1),
        rows_(types.in(0).shape[0]),
        n_(types.attrs.GetInt("rows")),
        k_(types.in(0).shape[1]),
        has_bias_(types.has(kBias)),
        x_(rows_, k_),
        gemv_(rows_, n_, k_),
        tasks_(groups_, rows_, rows_) {}

  int64_t scratch_bytes() const override { return tasks_.scratch_bytes() + x_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    PLUMB_RETURN_IF_ERROR(CheckStarts(args.i32(kStarts), groups_, rows_));
    const GroupTasks::List tasks = tasks_.Cut(
        args.i32(kStarts), args.scratch, [this](int64_t rows) { return gemv_.TasksFor(rows); });
    char* const x = static_cast<char*>(args.scratch) + tasks_.scratch_bytes();
    x_.Quantize(args.f32(0), args.threads, x);
    ParallelFor(tasks.size(), rows_ * n_ * k_ < kMaxSerialWork ? 1 : args.threads,
                [&](int64_t i) { RunTask(args, tasks[i], x); });
    return absl::OkStatus();
  }

 private:
  void RunTask(const KernelArgs& args, const GroupTask& task, char* x) const {
    const int64_t tile = task.group * Int8Blocks(n_) * Int8Groups(k_);
    gemv_.RunTask(
        gemv_.ForRows(task.rows, {x_.elements(x, task.begin), x_.scales(x, task.begin), rows_,
                                  static_cast<const int8_t*>(args.in[1]) + tile * kInt8TileElements,
                                  args.f32(kScales) + tile * kInt8TileRows,
                                  has_bias_ ? args.f32(kBias) + task.group * n_ : nullptr,
                                  args.out_f32(0) + task.begin * n_}),
        task.part);
  }

  const int64_t groups_, rows_, n_, k_;
  const bool has_bias_;
  const Int8Rows x_;
  const Int8Gemv gemv_;
  const GroupTasks tasks_;
};

absl::Status ReferenceExpertMatmulInt8(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0)[0], k = args.shape(0)[1], n = args.attrs.GetInt("rows");
  const int64_t groups = Int8Groups(k), tile_rows = Int8Blocks(n) * kInt8TileRows;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t e = ExpertOfRow(args.i(kStarts), i);
    for (int64_t j = 0; j < n; ++j) {
      double y = args.has(kBias) ? args.f(kBias)[static_cast<size_t>(e * n + j)] : 0;
      const int64_t row = e * tile_rows + j;
      for (int64_t l = 0; l < k; ++l) {
        y += args.f(0)[static_cast<size_t>(i * k + l)] *
             args.i(1)[static_cast<size_t>(Int8ElementAt(row, l, groups))] *
             args.f(kScales)[static_cast<size_t>(Int8ScaleAt(row, l, groups))];
      }
      args.out(0)[static_cast<size_t>(i * n + j)] = y;
    }
  }
  return absl::OkStatus();
}

double ExpertMatmulInt8Flops(const OpTypes& types) {
  return 2.0 * static_cast<double>(types.in(0).num_elements()) *
         static_cast<double>(types.attrs.GetInt("rows"));
}

}  // namespace

void RegisterExpertMatmulInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "expert_matmul_int8";
  op.min_inputs = 4;
  op.max_inputs = 5;
  op.infer = InferExpertMatmulInt8;
  op.make_kernel = MakeKernel<ExpertMatmulInt8Kernel>;
  op.reference = ReferenceExpertMatmulInt8;
  op.flops = ExpertMatmulInt8Flops;
  registry->Add(std::move(op));
}

}  // namespace plumb
