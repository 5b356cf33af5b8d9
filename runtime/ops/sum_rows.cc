// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/sum_rows.h"

#include <vector>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/sum_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// y = the sum of kRows rows of x, or with kAdd, += it. Some rows at a time, so that memory is read
// in a few long runs and y little of the time.
template <int kRows, bool kAdd, class T>
void AddRows(const T* x, int64_t n, int64_t stride, float* y) {
  const D d;
  ForVectors(d, 0, n, [=](const auto& io, int64_t j) HWY_ATTR {
    V sum = kAdd ? io.Load(d, y + j) : io.Load(d, x + j);
    for (int k = kAdd ? 0 : 1; k < kRows; ++k) sum = hn::Add(sum, io.Load(d, x + k * stride + j));
    io.Store(sum, d, y + j);
  });
}

constexpr int kTogether = 8;

template <class T>
void Add(const void* from, int64_t rows, int64_t n, int64_t stride, float* y) {
  const T* x = static_cast<const T*>(from);
  int64_t i = 0;
  for (; i + kTogether <= rows; i += kTogether) {
    AddRows<kTogether, true>(x + i * stride, n, stride, y);
  }
  for (; i < rows; ++i) AddRows<1, true>(x + i * stride, n, stride, y);
}

template <class T>
void Sum(const void* from, int64_t rows, int64_t n, int64_t stride, float* y) {
  const T* x = static_cast<const T*>(from);
  const int64_t first = rows >= kTogether ? kTogether : 1;
  if (rows >= kTogether) {
    AddRows<kTogether, false>(x, n, stride, y);
  } else {
    AddRows<1, false>(x, n, stride, y);
  }
  Add<T>(x + first * stride, rows - first, n, stride, y);
}

SumRowsFns Select(DType dtype) {
  if (dtype == DType::kBF16) return {&Sum<uint16_t>, &Add<uint16_t>};
  return {&Sum<float>, &Add<float>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

SumRowsFns SelectSumRows(DType dtype) { return HWY_DYNAMIC_DISPATCH(Select)(dtype); }

namespace {

absl::StatusOr<std::vector<TensorType>> InferSumRows(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  return std::vector<TensorType>{F32({types.in(0).shape.last()})};
}

// y_j = sum_i x_ij, so
//   dL/dx_ij = dL/dy_j: the gradient repeated over the rows.
std::vector<ValueId> VjpSumRows(GraphBuilder& b, const Node& node,
                                absl::Span<const ValueId> d_outputs, const std::vector<bool>&) {
  const TensorType& x = b.type(node.inputs[0]);
  Attrs ones_attrs({{"dims", std::vector<double>(x.shape.dims().begin(), x.shape.dims().end())},
                    {"value", 1.0}});
  if (x.dtype == DType::kBF16) ones_attrs.Set("bf16", true);
  const ValueId ones = b.Apply("fill", {}, ones_attrs);
  return {b.Apply("mul", {ones, d_outputs[0]})};
}

class SumRowsKernel : public Kernel {
 public:
  explicit SumRowsKernel(const TensorType& x)
      : rows_(x.shape.rows()),
        n_(x.shape.last()),
        // Enough rows a task that its partial sums are small compared with its input.
        tasks_(TaskCount(CeilDiv(rows_, 32), rows_ * n_)),
        row_bytes_(n_ * SizeOf(x.dtype)),
        sum_rows_(SelectSumRows(x.dtype).sum),
        sum_partials_(SelectSumRows(DType::kF32).sum) {}

  int64_t scratch_bytes() const override {
    return tasks_ == 1 ? 0 : tasks_ * n_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const char* x = static_cast<const char*>(args.in[0]);
    if (tasks_ == 1) {
      sum_rows_(x, rows_, n_, n_, args.out_f32(0));
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(args.scratch);  // [tasks, n]
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      sum_rows_(x + rows.begin * row_bytes_, rows.end - rows.begin, n_, n_, partial + i * n_);
    });
    sum_partials_(partial, tasks_, n_, n_, args.out_f32(0));
    return absl::OkStatus();
  }

 private:
  int64_t rows_, n_, tasks_, row_bytes_;
  decltype(SumRowsFns::sum) sum_rows_, sum_partials_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeSumRowsKernel(const OpTypes& types) {
  return std::make_unique<SumRowsKernel>(types.in(0));
}

absl::Status ReferenceSumRows(const ReferenceArgs& args) {
  const size_t n = args.out(0).size();
  for (size_t e = 0; e < args.f(0).size(); ++e) args.out(0)[e % n] += args.f(0)[e];
  return absl::OkStatus();
}

}  // namespace

void RegisterSumRows(OpRegistry* registry) {
  OpDef op;
  op.name = "sum_rows";
  op.min_inputs = op.max_inputs = 1;
  op.infer = InferSumRows;
  op.vjp = VjpSumRows;
  op.make_kernel = MakeSumRowsKernel;
  op.reference = ReferenceSumRows;
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
