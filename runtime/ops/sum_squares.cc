// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/sum_squares.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A fixed number of accumulators, so that all vector widths add in the same order.
constexpr int64_t kChains = 32;

// Squares of floats are exact in double.
double SumSquares(const float* x, int64_t n) {
  const hn::CappedTag<double, kChains> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  HWY_ALIGN double chains[kChains] = {};
  const int64_t whole = n - n % kChains;
  if (lanes == 8) {  // in registers
    auto s0 = hn::Zero(wide), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < whole; i += kChains) {
      const auto x0 = hn::PromoteTo(wide, hn::LoadU(narrow, x + i));
      const auto x1 = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + lanes));
      const auto x2 = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + 2 * lanes));
      const auto x3 = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + 3 * lanes));
      s0 = hn::MulAdd(x0, x0, s0);
      s1 = hn::MulAdd(x1, x1, s1);
      s2 = hn::MulAdd(x2, x2, s2);
      s3 = hn::MulAdd(x3, x3, s3);
    }
    hn::StoreU(s0, wide, chains);
    hn::StoreU(s1, wide, chains + lanes);
    hn::StoreU(s2, wide, chains + 2 * lanes);
    hn::StoreU(s3, wide, chains + 3 * lanes);
  } else {
    for (int64_t i = 0; i < whole; i += kChains) {
      for (int64_t c = 0; c < kChains; c += lanes) {
        const auto e = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + c));
        hn::Store(hn::MulAdd(e, e, hn::Load(wide, chains + c)), wide, chains + c);
      }
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const double e = x[i];
    chains[i - whole] += e * e;
  }
  // In pairs, since one sum after another would take longer than the squares of a small tensor.
  for (int64_t half = kChains / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

auto Select() { return &SumSquares; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

absl::StatusOr<std::vector<TensorType>> InferSumSquares(const OpTypes& types) {
  // The gradient of a norm's scalar parameter is f32[].
  if (!types.has(0) || types.in(0) != F32({})) PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  return std::vector<TensorType>{F32({1})};
}

// Each task sums a contiguous range; the partial sums are added in order.
class SumSquaresKernel : public Kernel {
 public:
  explicit SumSquaresKernel(const OpTypes& types)
      : n_(types.in(0).num_elements()),
        tasks_(TaskCount(n_, n_)),
        sum_squares_(HWY_DYNAMIC_DISPATCH(Select)()) {}

  int64_t scratch_bytes() const override { return tasks_ * static_cast<int64_t>(sizeof(double)); }

  absl::Status Run(const KernelArgs& args) const override {
    const float* x = args.f32(0);
    double* partial = static_cast<double*>(args.scratch);
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range range = TaskRange(n_, tasks_, i);
      partial[i] = sum_squares_(x + range.begin, range.end - range.begin);
    });
    double sum = 0;
    for (int64_t i = 0; i < tasks_; ++i) sum += partial[i];
    *args.out_f32(0) = static_cast<float>(sum);
    return absl::OkStatus();
  }

 private:
  int64_t n_;
  int64_t tasks_;
  double (*sum_squares_)(const float* x, int64_t n);
};

absl::Status ReferenceSumSquares(const ReferenceArgs& args) {
  for (const double e : args.f(0)) args.out(0)[0] += e * e;
  return absl::OkStatus();
}

}  // namespace

void RegisterSumSquares(OpRegistry* registry) {
  OpDef op;
  op.name = "sum_squares";
  op.min_inputs = op.max_inputs = 1;
  op.infer = InferSumSquares;
  op.make_kernel = MakeKernel<SumSquaresKernel>;
  op.reference = ReferenceSumSquares;
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
