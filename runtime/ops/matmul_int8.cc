// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemm/dequantized_gemm.h"
#include "runtime/kernels/gemv/gemv.h"
#include "runtime/kernels/gemv/gemv_int8.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Indices of the operands of product r: x, then weight and scales of each product, then biases.
size_t WeightAt(size_t r) { return 1 + 2 * r; }
size_t ScalesAt(size_t r) { return 2 + 2 * r; }
size_t BiasAt(size_t r, size_t count) { return 1 + 2 * count + r; }

// Returns the rows of each matrix.
std::vector<int64_t> RowsOf(const Attrs& attrs) {
  const std::vector<double>& rows = attrs.GetDoubles("rows");
  return {rows.begin(), rows.end()};
}

absl::StatusOr<std::vector<TensorType>> InferMatmulInt8(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  const Shape& x = types.in(0).shape;
  const std::vector<int64_t> rows = RowsOf(types.attrs);
  const size_t count = rows.size(), inputs = types.inputs.size();
  if (count < 1 || count > kMaxGemvs || inputs < 1 + 2 * count || inputs > 1 + 3 * count) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rows of ", count, " matrices do not fit ", inputs, " inputs"));
  }
  std::vector<TensorType> outputs;
  for (size_t r = 0; r < count; ++r) {
    PLUMB_RETURN_IF_ERROR(CheckInt8Matrix(types, WeightAt(r), "w", rows[r], x.last()));
    const size_t bias = BiasAt(r, count);
    if (types.has(bias)) {
      PLUMB_RETURN_IF_ERROR(CheckF32(types, bias, "bias"));
      if (types.in(bias).shape != Shape({rows[r]})) {
        return absl::InvalidArgumentError(absl::StrCat("bias must be [", rows[r], "]"));
      }
    }
    outputs.push_back(F32(x.WithLast(rows[r])));
  }
  return outputs;
}

// Returns, for each product, true if it has a bias.
std::vector<bool> BiasesOf(const OpTypes& types, size_t count) {
  std::vector<bool> biases;
  for (size_t r = 0; r < count; ++r) biases.push_back(types.has(BiasAt(r, count)));
  return biases;
}
const float* BiasOf(const KernelArgs& args, const std::vector<bool>& biases, size_t r) {
  return biases[r] ? args.f32(BiasAt(r, biases.size())) : nullptr;
}

class GemvInt8Kernel : public Kernel {
 public:
  GemvInt8Kernel(const OpTypes& types, const std::vector<int64_t>& rows)
      : m_(types.in(0).shape.rows()),
        k_(types.in(0).shape.last()),
        biases_(BiasesOf(types, rows.size())) {
    for (const int64_t n : rows) gemvs_.Add(Int8Gemv(m_, n, k_));
  }

  int64_t scratch_bytes() const override {
    return gemvs_.scratch_bytes() + ElementBytes() +
           AlignUp(m_ * Int8Groups(k_) * SizeOf(DType::kF32));
  }

  absl::Status Run(const KernelArgs& args) const override {
    char* const rounded = static_cast<char*>(args.scratch) + gemvs_.scratch_bytes();
    auto* const x = reinterpret_cast<int16_t*>(rounded);
    auto* const x_scales = reinterpret_cast<float*>(rounded + ElementBytes());
    QuantizeInt16(args.f32(0), m_, k_, x, x_scales);
    const auto operands = [&](size_t r) -> Int8Gemv::Operands {
      return {x,
              x_scales,
              static_cast<const int8_t*>(args.in[WeightAt(r)]),
              args.f32(ScalesAt(r)),
              BiasOf(args, biases_, r),
              args.out_f32(r)};
    };
    gemvs_.Run(operands, args.scratch, args.threads);
    return absl::OkStatus();
  }

 private:
  // Returns the bytes of x in 16 bits.
  int64_t ElementBytes() const {
    constexpr int64_t kGroupBytes = kInt8Group * static_cast<int64_t>(sizeof(int16_t));
    return AlignUp(m_ * Int8Groups(k_) * kGroupBytes);
  }

  const int64_t m_, k_;
  const std::vector<bool> biases_;
  GemvJob<Int8Gemv> gemvs_;
};

// A task is several panels of w: N-parallel.
class DequantizedGemmKernel : public Kernel {
 public:
  DequantizedGemmKernel(const OpTypes& types, const std::vector<int64_t>& rows)
      : m_(types.in(0).shape.rows()), biases_(BiasesOf(types, rows.size())) {
    for (const int64_t n : rows) products_.emplace_back(n, types.in(0).shape.last());
  }

  int64_t scratch_bytes() const override {
    int64_t max = 0;
    for (const DequantizedGemm& product : products_) {
      max = std::max(max, TasksOf(product) * product.scratch_bytes());
    }
    return max;
  }

  absl::Status Run(const KernelArgs& args) const override {
    for (size_t r = 0; r < products_.size(); ++r) {
      const DequantizedGemm& product = products_[r];
      const DequantizedGemm::Operands operands = {
          args.f32(0), static_cast<const int8_t*>(args.in[WeightAt(r)]), args.f32(ScalesAt(r)),
          BiasOf(args, biases_, r), args.out_f32(r)};
      const int64_t tasks = TasksOf(product);
      ParallelFor(tasks, args.threads, [&](int64_t task) {
        void* const scratch =
            static_cast<std::byte*>(args.scratch) + task * product.scratch_bytes();
        const Range panels = TaskRange(product.panels(), tasks, task);
        for (int64_t i = panels.begin; i < panels.end; ++i) {
          product.RunPanel(operands, m_, i, scratch);
        }
      });
    }
    return absl::OkStatus();
  }

 private:
  static int64_t TasksOf(const DequantizedGemm& product) {
    constexpr int64_t kMaxPanelTasks = 32;
    return std::min(kMaxPanelTasks, product.panels());
  }

  const int64_t m_;
  const std::vector<bool> biases_;
  std::vector<DequantizedGemm> products_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeMatmulInt8Kernel(const OpTypes& types) {
  const std::vector<int64_t> rows = RowsOf(types.attrs);
  if (types.in(0).shape.rows() <= kMaxGemvRows) {
    return std::make_unique<GemvInt8Kernel>(types, rows);
  }
  return std::make_unique<DequantizedGemmKernel>(types, rows);
}

absl::Status ReferenceMatmulInt8(const ReferenceArgs& args) {
  const std::vector<int64_t> rows = RowsOf(args.attrs);
  const int64_t m = args.shape(0).rows(), k = args.shape(0).last(), groups = Int8Groups(k);
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t w = WeightAt(r), scales = ScalesAt(r), bias = BiasAt(r, rows.size());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < rows[r]; ++j) {
        double y = args.has(bias) ? args.f(bias)[j] : 0;
        for (int64_t l = 0; l < k; ++l) {
          y += args.f(0)[i * k + l] * args.i(w)[Int8ElementAt(j, l, groups)] *
               args.f(scales)[Int8ScaleAt(j, l, groups)];
        }
        args.out(r)[i * rows[r] + j] = y;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMatmulInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "matmul_int8";
  op.min_inputs = 3;
  op.max_inputs = OpDef::kVariadic;
  op.infer = InferMatmulInt8;
  op.make_kernel = MakeMatmulInt8Kernel;
  op.reference = ReferenceMatmulInt8;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  op.flops = MatmulInt8Flops;
  registry->Add(std::move(op));
}

}  // namespace plumb
