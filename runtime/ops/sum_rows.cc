#include "runtime/ops/sum_rows.h"

#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/sum_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

void SumRows(const float* x, int64_t rows, int64_t n, float* y) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {  // four chains of additions at a time
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const float* row = x + j;
    for (int64_t i = 0; i < rows; ++i, row += n) {
      s0 = hn::Add(s0, hn::LoadU(d, row));
      s1 = hn::Add(s1, hn::LoadU(d, row + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, row + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, row + 3 * lanes));
    }
    hn::StoreU(s0, d, y + j);
    hn::StoreU(s1, d, y + j + lanes);
    hn::StoreU(s2, d, y + j + 2 * lanes);
    hn::StoreU(s3, d, y + j + 3 * lanes);
  }
  for (; j + lanes <= n; j += lanes) {
    V s = hn::Zero(d);
    for (int64_t i = 0; i < rows; ++i) s = hn::Add(s, hn::LoadU(d, x + i * n + j));
    hn::StoreU(s, d, y + j);
  }
  if (j < n) {
    const Tail<D> tail(d, n - j);
    V s = hn::Zero(d);
    for (int64_t i = 0; i < rows; ++i) s = hn::Add(s, tail.Load(d, x + i * n + j));
    tail.Store(s, d, y + j);
  }
}

SumRowsFn Select() { return &SumRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

SumRowsFn SelectSumRows() { return HWY_DYNAMIC_DISPATCH(Select)(); }

namespace {

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  return std::vector<TensorType>{F32({types.in(0).shape.last()})};
}

// y_j = sum_i x_ij, so
//   dL/dx_ij = dL/dy_j: the gradient repeated over the rows.
std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                         const std::vector<bool>&) {
  const Shape& x = b.type(node.inputs[0]).shape;
  const std::vector<double> dims(x.dims().begin(), x.dims().end());
  const ValueId ones = b.Apply("fill", {}, Attrs({{"dims", dims}, {"value", 1.0}}));
  return {b.Apply("mul", {ones, d_outputs[0]})};
}

class SumRowsKernel : public Kernel {
 public:
  explicit SumRowsKernel(const Shape& x)
      : rows_(x.rows()),
        n_(x.last()),
        tasks_(TaskCount(rows_, rows_ * n_)),
        sum_rows_(SelectSumRows()) {}

  int64_t scratch_bytes() const override {
    return tasks_ == 1 ? 0 : tasks_ * n_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const float* x = args.f32(0);
    if (tasks_ == 1) {
      sum_rows_(x, rows_, n_, args.out_f32(0));
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(args.scratch);  // [tasks, n]
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      sum_rows_(x + rows.begin * n_, rows.end - rows.begin, n_, partial + i * n_);
    });
    sum_rows_(partial, tasks_, n_, args.out_f32(0));
    return absl::OkStatus();
  }

 private:
  int64_t rows_, n_, tasks_;
  SumRowsFn sum_rows_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return std::make_unique<SumRowsKernel>(types.in(0).shape);
}

absl::Status Reference(const ReferenceArgs& args) {
  const size_t n = args.out(0).size();
  for (size_t e = 0; e < args.f(0).size(); ++e) args.out(0)[e % n] += args.f(0)[e];
  return absl::OkStatus();
}

}  // namespace

void RegisterSumRows(OpRegistry* registry) {
  OpDef op;
  op.name = "sum_rows";
  op.min_inputs = op.max_inputs = 1;
  op.infer = Infer;
  op.vjp = Vjp;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
