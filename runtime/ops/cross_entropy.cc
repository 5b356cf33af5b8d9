// cross_entropy and cross_entropy_grad: mean negative log-likelihood of target tokens.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/cross_entropy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

#ifndef PLUMB_CROSS_ENTROPY_TYPES
#define PLUMB_CROSS_ENTROPY_TYPES
namespace plumb {
namespace {

struct CrossEntropyFns {
  // lse of `rows` rows of `n` logits; `sums` is scratch for as many numbers.
  void (*log_sum_exp)(const float* logits, int64_t rows, int64_t n, float* sums, float* lse);
  // y = exp(logits - lse) * factor for one row; y may be `logits`.
  void (*softmax)(const float* logits, int64_t n, float lse, float factor, float* y);
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

void LogSumExp(const float* logits, int64_t rows, int64_t n, float* sums, float* lse) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = (n - 1) / lanes * lanes;
  const Tail<D> tail(d, n - last);
  const V minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = logits + r * n;
    // Two chains: one would wait for itself.
    V top = hn::IfThenElse(tail.mask(), tail.Load(d, x + last), minus_infinity), top2 = top;
    int64_t e = 0;
    for (; e + 2 * lanes <= last; e += 2 * lanes) {
      top = hn::Max(top, hn::LoadU(d, x + e));
      top2 = hn::Max(top2, hn::LoadU(d, x + e + lanes));
    }
    for (; e < last; e += lanes) top = hn::Max(top, hn::LoadU(d, x + e));
    top = hn::MaxOfLanes(d, hn::Max(top, top2));

    V sum = hn::IfThenElseZero(tail.mask(), ExpKeepingNaN(d, hn::Sub(tail.Load(d, x + last), top)));
    V sum2 = hn::Zero(d);
    for (e = 0; e + 2 * lanes <= last; e += 2 * lanes) {
      sum = hn::Add(sum, ExpKeepingNaN(d, hn::Sub(hn::LoadU(d, x + e), top)));
      sum2 = hn::Add(sum2, ExpKeepingNaN(d, hn::Sub(hn::LoadU(d, x + e + lanes), top)));
    }
    for (; e < last; e += lanes) {
      sum = hn::Add(sum, ExpKeepingNaN(d, hn::Sub(hn::LoadU(d, x + e), top)));
    }
    sums[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, sum2)));
    lse[r] = hn::GetLane(top);
  }
  // All logarithms at once: one by one they would cost more than a short row.
  for (int64_t r = 0; r < rows; r += lanes) {
    const Tail<D> some(d, std::min(lanes, rows - r));
    const V sum = some.Load(d, sums + r);
    const V log = hn::IfThenElse(hn::Eq(sum, sum), hn::Log(d, sum), sum);
    some.Store(hn::Add(some.Load(d, lse + r), log), d, lse + r);
  }
}

void Softmax(const float* logits, int64_t n, float lse, float factor, float* y) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V lse_v = hn::Set(d, lse), factor_v = hn::Set(d, factor);
  int64_t e = 0;
  for (; e + lanes <= n; e += lanes) {
    const V p = ExpKeepingNaN(d, hn::Sub(hn::LoadU(d, logits + e), lse_v));
    hn::StoreU(hn::Mul(p, factor_v), d, y + e);
  }
  if (e < n) {
    const Tail<D> tail(d, n - e);
    const V p = ExpKeepingNaN(d, hn::Sub(tail.Load(d, logits + e), lse_v));
    tail.Store(hn::Mul(p, factor_v), d, y + e);
  }
}

CrossEntropyFns SelectCrossEntropy() { return {LogSumExp, Softmax}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectCrossEntropy);

namespace {

// -- Shape rules

absl::Status CheckLogitsAndTargets(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "logits"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "targets"));
  const Shape &logits = types.in(0).shape, &targets = types.in(1).shape;
  if (targets.num_elements() != logits.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "targets ", targets.ToString(), " do not match the rows of logits ", logits.ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckLogitsAndTargets(types));
  return std::vector<TensorType>{F32({1}), F32({types.in(0).shape.rows()})};
}

absl::StatusOr<std::vector<TensorType>> InferGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckLogitsAndTargets(types));
  if (types.in(2) != F32({types.in(0).shape.rows()}) || types.in(3) != F32({1})) {
    return absl::InvalidArgumentError(absl::StrCat("lse is ", types.in(2).ToString(), " and dloss ",
                                                   types.in(3).ToString(),
                                                   ", they must be f32[rows] and f32[1]"));
  }
  return std::vector<TensorType>{types.in(0)};
}

// -- VJP
//
// loss = 1/n sum_r (lse_r - x_r[t_r]) over the n rows with a target, and dlse_r/dx_rj =
// softmax(x_r)_j, so
//   dx_rj = dloss / n (exp(x_rj - lse_r) - [j = t_r]),  0 in rows without a target.
// lse is kept for this purpose only and has no gradient.
std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                         const std::vector<bool>& wanted) {
  if (!wanted[0] || d_outputs[0] == kNoValue) return {kNoValue, kNoValue};
  return {b.Apply("cross_entropy_grad",
                  {node.inputs[0], node.inputs[1], node.outputs[1], d_outputs[0]}),
          kNoValue};
}

// The number of rows with a target, which must be tokens of the vocabulary.
absl::StatusOr<int64_t> CountTargets(const int32_t* targets, int64_t rows, int64_t vocabulary) {
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] >= vocabulary) {
      return absl::OutOfRangeError(absl::StrCat("target ", targets[r], " of row ", r,
                                                " is outside the vocabulary of ", vocabulary));
    }
    count += targets[r] >= 0;
  }
  return count;
}

// -- Kernels

class CrossEntropyKernel : public Kernel {
 public:
  CrossEntropyKernel(int64_t rows, int64_t vocabulary)
      : rows_(rows),
        vocabulary_(vocabulary),
        tasks_(TaskCount(rows, 16 * rows * vocabulary)),
        fns_(HWY_DYNAMIC_DISPATCH(SelectCrossEntropy)()) {}

  int64_t scratch_bytes() const override { return rows_ * static_cast<int64_t>(sizeof(float)); }

  absl::Status Run(const KernelArgs& args) const override {
    const float* logits = args.f32(0);
    const int32_t* targets = args.i32(1);
    float* lse = args.out_f32(1);
    PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(targets, rows_, vocabulary_));
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(rows_, tasks_, task);
      fns_.log_sum_exp(logits + range.begin * vocabulary_, range.end - range.begin, vocabulary_,
                       static_cast<float*>(args.scratch) + range.begin, lse + range.begin);
    });
    double sum = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      if (targets[r] >= 0) {
        sum +=
            static_cast<double>(lse[r]) - static_cast<double>(logits[r * vocabulary_ + targets[r]]);
      }
    }
    args.out_f32(0)[0] = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
    return absl::OkStatus();
  }

 private:
  const int64_t rows_;
  const int64_t vocabulary_;
  const int64_t tasks_;
  const CrossEntropyFns fns_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return std::make_unique<CrossEntropyKernel>(types.in(0).shape.rows(), types.in(0).shape.last());
}

class CrossEntropyGradKernel : public Kernel {
 public:
  CrossEntropyGradKernel(int64_t rows, int64_t vocabulary)
      : rows_(rows),
        vocabulary_(vocabulary),
        tasks_(TaskCount(rows, 12 * rows * vocabulary)),
        fns_(HWY_DYNAMIC_DISPATCH(SelectCrossEntropy)()) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* targets = args.i32(1);
    PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(targets, rows_, vocabulary_));
    const float factor =
        count == 0
            ? 0.0f
            : static_cast<float>(static_cast<double>(args.f32(3)[0]) / static_cast<double>(count));
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(rows_, tasks_, task);
      for (int64_t r = range.begin; r < range.end; ++r) {
        float* y = args.out_f32(0) + r * vocabulary_;
        if (targets[r] < 0) {
          std::fill(y, y + vocabulary_, 0.0f);
          continue;
        }
        fns_.softmax(args.f32(0) + r * vocabulary_, vocabulary_, args.f32(2)[r], factor, y);
        y[targets[r]] -= factor;
      }
    });
    return absl::OkStatus();
  }

 private:
  const int64_t rows_;
  const int64_t vocabulary_;
  const int64_t tasks_;
  const CrossEntropyFns fns_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeGradKernel(const OpTypes& types) {
  return std::make_unique<CrossEntropyGradKernel>(types.in(0).shape.rows(),
                                                  types.in(0).shape.last());
}

// -- References

absl::Status Reference(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double* x = &args.f(0)[static_cast<size_t>(r * n)];
    const double top = *std::max_element(x, x + n);
    double total = 0;
    for (int64_t j = 0; j < n; ++j) total += std::exp(x[j] - top);
    const double lse = top + std::log(total);
    args.out(1)[static_cast<size_t>(r)] = lse;
    if (const int32_t target = args.i(1)[static_cast<size_t>(r)]; target >= 0) {
      sum += lse - x[target];
    }
  }
  args.out(0)[0] = count == 0 ? 0 : sum / static_cast<double>(count);
  return absl::OkStatus();
}

absl::Status ReferenceGrad(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t target = args.i(1)[static_cast<size_t>(r)];
    if (target < 0) continue;
    for (int64_t j = 0; j < n; ++j) {
      const size_t at = static_cast<size_t>(r * n + j);
      const double p = std::exp(args.f(0)[at] - args.f(2)[static_cast<size_t>(r)]);
      args.out(0)[at] = args.f(3)[0] / static_cast<double>(count) * (p - (j == target ? 1 : 0));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterCrossEntropy(OpRegistry* registry) {
  OpDef op;
  op.name = "cross_entropy";
  op.min_inputs = op.max_inputs = 2;
  op.infer = Infer;
  op.vjp = Vjp;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "cross_entropy_grad";
  grad.min_inputs = grad.max_inputs = 4;
  grad.may_alias = {{0, 0}};
  grad.infer = InferGrad;
  grad.make_kernel = MakeGradKernel;
  grad.reference = ReferenceGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
