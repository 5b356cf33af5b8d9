// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
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
std::vector<int64_t> GetRows(const Attrs& attrs) {
  const std::vector<double>& rows = attrs.GetDoubles("rows");
  return {rows.begin(), rows.end()};
}

absl::StatusOr<std::vector<TensorType>> InferMatmulInt8(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  const Shape& x = types.in(0).shape;
  const std::vector<int64_t> rows = GetRows(types.attrs);
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
std::vector<bool> FindBiases(const OpTypes& types, size_t count) {
  std::vector<bool> biases;
  for (size_t r = 0; r < count; ++r) biases.push_back(types.has(BiasAt(r, count)));
  return biases;
}
const float* GetBias(const KernelArgs& args, const std::vector<bool>& biases, size_t r) {
  return biases[r] ? args.f32(BiasAt(r, biases.size())) : nullptr;
}

class MatmulInt8Kernel : public Kernel {
 public:
  explicit MatmulInt8Kernel(const OpTypes& types)
      : m_(types.in(0).shape.rows()),
        x_(m_, types.in(0).shape.last()),
        biases_(FindBiases(types, types.outputs.size())) {
    for (const TensorType* y : types.outputs) {
      gemvs_.Add(Int8Gemv(m_, y->shape.last(), types.in(0).shape.last()));
    }
  }

  int64_t scratch_bytes() const override { return x_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    char* const x = static_cast<char*>(args.scratch);
    x_.Quantize(args.f32(0), args.threads, x);
    const auto operands = [&](size_t r) -> Int8Gemv::Operands {
      return {x_.elements(x),
              x_.scales(x),
              m_,
              static_cast<const int8_t*>(args.in[WeightAt(r)]),
              args.f32(ScalesAt(r)),
              GetBias(args, biases_, r),
              args.out_f32(r)};
    };
    gemvs_.Run(operands, nullptr, args.threads);
    return absl::OkStatus();
  }

 private:
  const int64_t m_;
  const Int8Rows x_;
  const std::vector<bool> biases_;
  GemvJob<Int8Gemv> gemvs_;
};

absl::Status ReferenceMatmulInt8(const ReferenceArgs& args) {
  const std::vector<int64_t> rows = GetRows(args.attrs);
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
  op.make_kernel = MakeKernel<MatmulInt8Kernel>;
  op.reference = ReferenceMatmulInt8;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  op.flops = MatmulInt8Flops;
  registry->Add(std::move(op));
}

}  // namespace plumb
