// SPDX-License-Identifier: Apache-2.0
// cross_entropy and cross_entropy_grad: mean negative log-likelihood of target tokens, and
// optionally an objective that is minimized instead: with label smoothing, with a z-loss.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/attrs.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/cross_entropy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/exp-inl.h"

#ifndef PLUMB_CROSS_ENTROPY_TYPES
#define PLUMB_CROSS_ENTROPY_TYPES
namespace plumb {
namespace {

// The objective, if it is not the cross-entropy itself:
//   1/n sum_r ((1 - e) (lse_r - x_r[t_r]) + e mean_j (lse_r - x_rj) + z lse_r^2)
// with label smoothing e (Szegedy et al. 2016, as in torch.nn.functional.cross_entropy) and the
// z-loss z, which keeps the softmax's normalizer near 1 (Chowdhery et al., PaLM, section 5).
struct Objective {
  double label_smoothing;
  double z_loss;

  explicit Objective(const Attrs& attrs)
      : label_smoothing(attrs.GetDouble("label_smoothing", 0)),
        z_loss(attrs.GetDouble("z_loss", 0)) {}
  bool IsCrossEntropy() const { return label_smoothing == 0 && z_loss == 0; }
};

// Rows [begin, end) of `n` logits each, f32 or bf16.
struct LogitRows {
  const void* logits;
  int64_t begin, end;
  int64_t n;
};

struct CrossEntropyFns {
  // Sets lse[r] for each row. `sums` is scratch of the same size, with the sum of row r at sums[r].
  void (*log_sum_exp)(const LogitRows& rows, float* sums, float* lse);
  // Sets sums[r] to the sum of row r.
  void (*sum)(const LogitRows& rows, float* sums);
  // Sets y = (exp(logits - lse) - [j = target]) * factor, 0 in rows without a target. y may be
  // `logits`.
  void (*gradient)(const LogitRows& rows, const int32_t* targets, const float* lse, float factor,
                   void* y);
  // Sets y to the gradient of the objective in the same way.
  void (*objective_gradient)(const LogitRows& rows, const int32_t* targets, const float* lse,
                             const Objective& objective, float factor, void* y);
};

inline float Widened(float x) { return x; }
inline float Widened(uint16_t x) { return FloatFromBf16(x); }
inline void Put(float x, float* to) { *to = x; }
inline void Put(float x, uint16_t* to) { *to = Bf16FromFloat(x); }

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Logits of a row per block: two blocks fit the L1 cache.
constexpr int64_t kBlock = 4096;

// Returns the largest of x[0, n), n >= 1. Four independent accumulators hide the latency of max.
template <class T>
HWY_INLINE float Largest(const T* x, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  V top = minus_infinity, top1 = top, top2 = top, top3 = top;
  int64_t e = 0;
  for (; e + 4 * lanes <= n; e += 4 * lanes) {
    top = hn::Max(top, LoadFloats(d, x + e));
    top1 = hn::Max(top1, LoadFloats(d, x + e + lanes));
    top2 = hn::Max(top2, LoadFloats(d, x + e + 2 * lanes));
    top3 = hn::Max(top3, LoadFloats(d, x + e + 3 * lanes));
  }
  for (; e + lanes <= n; e += lanes) top = hn::Max(top, LoadFloats(d, x + e));
  if (e < n) {
    const FloatTail<D> tail(d, n - e);
    top = hn::Max(top, hn::IfThenElse(tail.mask(), tail.Load(d, x + e), minus_infinity));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(top, top1), hn::Max(top2, top3))));
}

// Returns the sum of e^(x - top) over x[0, n), n >= 1. Prefetches the next block meanwhile: the
// maximum is memory-bound, this sum is compute-bound.
template <class T>
HWY_INLINE float SumOfExp(const T* x, int64_t n, float top) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V shift = hn::Set(d, top);
  V sum = hn::Zero(d), sum1 = sum;
  int64_t e = 0;
  for (; e + 2 * lanes <= n; e += 2 * lanes) {
    hwy::Prefetch(x + e + kBlock);
    if (sizeof(T) == sizeof(float)) hwy::Prefetch(x + e + kBlock + lanes);
    sum = hn::Add(sum, FastExp(d, hn::Sub(LoadFloats(d, x + e), shift)));
    sum1 = hn::Add(sum1, FastExp(d, hn::Sub(LoadFloats(d, x + e + lanes), shift)));
  }
  for (; e + lanes <= n; e += lanes) {
    sum = hn::Add(sum, FastExp(d, hn::Sub(LoadFloats(d, x + e), shift)));
  }
  if (e < n) {
    const FloatTail<D> tail(d, n - e);
    const V last = FastExp(d, hn::Sub(tail.Load(d, x + e), shift));
    sum1 = hn::Add(sum1, hn::IfThenElseZero(tail.mask(), last));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, sum1)));
}

// Online softmax, which reads memory once: takes the maximum of a block that fits the L1 cache,
// rescales the previous sum to the new maximum, and adds the block's sum. Blocks are added in
// double, because a row may have many.
template <class T>
void LogSumExp(const LogitRows& rows, float* sums, float* lse) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * rows.n;
    float top = Largest(x, std::min(kBlock, rows.n));
    double sum = static_cast<double>(SumOfExp(x, std::min(kBlock, rows.n), top));
    for (int64_t at = kBlock; at < rows.n; at += kBlock) {
      const int64_t count = std::min(kBlock, rows.n - at);
      if (const float block_top = Largest(x + at, count); block_top > top) {
        sum *= std::exp(static_cast<double>(top - block_top));
        top = block_top;
      }
      sum += static_cast<double>(SumOfExp(x + at, count, top));
    }
    sums[r] = static_cast<float>(sum);
    lse[r] = top;
  }
  // Logarithms of all rows in vectors: one by one they would cost more than a short row.
  for (int64_t r = rows.begin; r < rows.end; r += lanes) {
    const Tail<D> some(d, std::min(lanes, rows.end - r));
    const V sum = some.Load(d, sums + r);
    const V log = hn::IfThenElse(hn::Eq(sum, sum), hn::Log(d, sum), sum);
    some.Store(hn::Add(some.Load(d, lse + r), log), d, lse + r);
  }
}

template <class T>
void Gradient(const LogitRows& rows, const int32_t* targets, const float* lse, float factor,
              void* to) {
  const D d;
  const int64_t n = rows.n;
  const V factor_v = hn::Set(d, factor);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * n;
    T* y = static_cast<T*>(to) + r * n;
    if (targets[r] < 0) {
      std::fill(y, y + n, T{0});
      continue;
    }
    // Computed before y overwrites x, so that p - 1 is rounded once.
    const V lse_v = hn::Set(d, lse[r]);
    const V target = hn::Set(d, Widened(x[targets[r]]));
    const V p = FastExp(d, hn::Sub(target, lse_v));
    const float at_target = hn::GetLane(hn::Mul(hn::Sub(p, hn::Set(d, 1.0f)), factor_v));
    ForVectors(d, 0, n, [=](const auto& io, int64_t e) HWY_ATTR {
      const V p_e = FastExp(d, hn::Sub(io.Load(d, x + e), lse_v));
      io.Store(hn::Mul(p_e, factor_v), d, y + e);
    });
    Put(at_target, y + targets[r]);
  }
}

template <class T>
void SumRows(const LogitRows& rows, float* sums) {
  const D d;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * rows.n;
    constexpr int64_t kSummed = 128;  // summed in f32; these sums are added in double
    double sum = 0;
    for (int64_t at = 0; at < rows.n; at += kSummed) {
      V block = hn::Zero(d);
      ForVectors(d, at, std::min(rows.n, at + kSummed),
                 [&block, x, d](const auto& io, int64_t e)
                     HWY_ATTR { block = hn::Add(block, io.Load(d, x + e)); });
      sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, block)));
    }
    sums[r] = static_cast<float>(sum);
  }
}

template <class T>
void ObjectiveGradient(const LogitRows& rows, const int32_t* targets, const float* lse,
                       const Objective& objective, float factor, void* to) {
  const D d;
  const int64_t n = rows.n;
  const float uniform = static_cast<float>(objective.label_smoothing / static_cast<double>(n));
  const float on_target = static_cast<float>(1 - objective.label_smoothing);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * n;
    T* y = static_cast<T*>(to) + r * n;
    if (targets[r] < 0) {
      std::fill(y, y + n, T{0});
      continue;
    }
    const V lse_v = hn::Set(d, lse[r]), factor_v = hn::Set(d, factor);
    const V of_p =
        hn::Set(d, static_cast<float>(1 + 2 * objective.z_loss * static_cast<double>(lse[r])));
    const V shift = hn::Set(d, uniform);
    const V target = hn::Set(d, Widened(x[targets[r]]));
    const V p = FastExp(d, hn::Sub(target, lse_v));
    const V rest = hn::Sub(hn::MulSub(p, of_p, shift), hn::Set(d, on_target));
    const float at_target = hn::GetLane(hn::Mul(rest, factor_v));
    ForVectors(d, 0, n, [=](const auto& io, int64_t e) HWY_ATTR {
      const V p_e = FastExp(d, hn::Sub(io.Load(d, x + e), lse_v));
      io.Store(hn::Mul(hn::MulSub(p_e, of_p, shift), factor_v), d, y + e);
    });
    Put(at_target, y + targets[r]);
  }
}

template <class T>
CrossEntropyFns Fns() {
  return {&LogSumExp<T>, &SumRows<T>, &Gradient<T>, &ObjectiveGradient<T>};
}

CrossEntropyFns SelectCrossEntropy(DType dtype) {
  return dtype == DType::kBF16 ? Fns<uint16_t>() : Fns<float>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectCrossEntropy);

namespace {

// Returns the number of rows with a target; kOutOfRange if a target is not in the vocabulary.
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

// Returns true if the last output is the loss of each row.
bool OutputsRows(const Attrs& attrs) { return attrs.GetBool("rows", false); }

// -- Shape rules

absl::Status CheckLogitsAndTargets(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "logits"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "targets"));
  const Shape &logits = types.in(0).shape, &targets = types.in(1).shape;
  if (targets.num_elements() != logits.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "targets ", targets.ToString(), " do not match the rows of logits ", logits.ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> InferCrossEntropy(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckLogitsAndTargets(types));
  const Objective objective(types.attrs);
  if (!(objective.label_smoothing >= 0 && objective.label_smoothing <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label_smoothing is ", objective.label_smoothing, ", not in [0, 1]"));
  }
  if (!(objective.z_loss >= 0 && std::isfinite(objective.z_loss))) {
    return absl::InvalidArgumentError(
        absl::StrCat("z_loss is ", objective.z_loss, ", not zero or positive"));
  }
  std::vector<TensorType> outputs = {F32({1}), F32({types.in(0).shape.rows()})};
  if (!objective.IsCrossEntropy()) outputs.push_back(outputs.front());
  if (OutputsRows(types.attrs)) outputs.push_back(outputs[1]);
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferCrossEntropyGrad(const OpTypes& types) {
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
//   dx_rj = dloss / n (exp(x_rj - lse_r) - [j = t_r]),  0 in rows without a target,
// and of the objective, over V logits a row,
//   dx_rj = dobjective / n (exp(x_rj - lse_r) (1 + 2 z lse_r) - e / V - (1 - e) [j = t_r]).
// lse is kept for this purpose only and has no gradient.
std::vector<ValueId> VjpCrossEntropy(GraphBuilder& b, const Node& node,
                                     absl::Span<const ValueId> d_outputs,
                                     const std::vector<bool>& wanted) {
  std::vector<ValueId> terms;
  const auto add = [&](size_t output, const Attrs& attrs) {
    if (!wanted[0] || output >= d_outputs.size() || d_outputs[output] == kNoValue) return;
    terms.push_back(b.Apply("cross_entropy_grad",
                            {node.inputs[0], node.inputs[1], node.outputs[1], d_outputs[output]},
                            attrs));
  };
  add(0, {});
  if (!Objective(node.attrs).IsCrossEntropy()) add(2, node.attrs);
  if (terms.empty()) return {kNoValue, kNoValue};
  if (terms.size() == 1) return {terms[0], kNoValue};
  return {b.Apply("combine", terms, Attrs({{"coefs", std::vector<double>{1, 1}}})), kNoValue};
}

// -- Kernels

class CrossEntropyKernel : public Kernel {
 public:
  CrossEntropyKernel(const TensorType& logits, const Attrs& attrs)
      : objective_(attrs),
        rows_output_(OutputsRows(attrs) ? (objective_.IsCrossEntropy() ? 2 : 3) : 0),
        rows_(logits.shape.rows()),
        vocabulary_(logits.shape.last()),
        is_bf16_(logits.dtype == DType::kBF16),
        tasks_(TaskCount(rows_, 16 * rows_ * vocabulary_)),
        fns_(HWY_DYNAMIC_DISPATCH(SelectCrossEntropy)(logits.dtype)) {}

  int64_t scratch_bytes() const override { return rows_ * static_cast<int64_t>(sizeof(float)); }

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* targets = args.i32(1);
    float* lse = args.out_f32(1);
    PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(targets, rows_, vocabulary_));
    float* const scratch = static_cast<float*>(args.scratch);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(rows_, tasks_, task);
      const LogitRows rows = {args.in[0], range.begin, range.end, vocabulary_};
      fns_.log_sum_exp(rows, scratch, lse);
      if (objective_.label_smoothing > 0) fns_.sum(rows, scratch);
    });
    double sum = 0, more = 0;
    float* const losses = rows_output_ == 0 ? nullptr : args.out_f32(rows_output_);
    for (int64_t r = 0; r < rows_; ++r) {
      if (losses != nullptr) losses[r] = 0;
      if (targets[r] < 0) continue;
      const int64_t at = r * vocabulary_ + targets[r];
      const float logit = is_bf16_ ? FloatFromBf16(args.bf16(0)[at]) : args.f32(0)[at];
      const double loss = static_cast<double>(lse[r]) - static_cast<double>(logit);
      sum += loss;
      if (losses != nullptr) losses[r] = static_cast<float>(loss);
      if (!objective_.IsCrossEntropy()) more += MoreThan(lse[r], logit, scratch[r]);
    }
    const auto mean = [count](double total) {
      return count == 0 ? 0.0f : static_cast<float>(total / static_cast<double>(count));
    };
    args.out_f32(0)[0] = mean(sum);
    if (!objective_.IsCrossEntropy()) args.out_f32(2)[0] = mean(sum + more);
    return absl::OkStatus();
  }

 private:
  // Returns the objective of a row minus its cross-entropy. `row_sum` is used with label smoothing
  // only.
  double MoreThan(float lse, float logit, float row_sum) const {
    const double e = objective_.label_smoothing, l = static_cast<double>(lse);
    const double smoothed =
        e == 0 ? 0
               : e * (static_cast<double>(logit) -
                      static_cast<double>(row_sum) / static_cast<double>(vocabulary_));
    return smoothed + objective_.z_loss * l * l;
  }

  const Objective objective_;
  const size_t rows_output_;  // 0: there is none
  const int64_t rows_;
  const int64_t vocabulary_;
  const bool is_bf16_;
  const int64_t tasks_;
  const CrossEntropyFns fns_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeCrossEntropyKernel(const OpTypes& types) {
  return std::make_unique<CrossEntropyKernel>(types.in(0), types.attrs);
}

class CrossEntropyGradKernel : public Kernel {
 public:
  CrossEntropyGradKernel(const TensorType& logits, const Objective& objective)
      : objective_(objective),
        rows_(logits.shape.rows()),
        vocabulary_(logits.shape.last()),
        tasks_(TaskCount(rows_, 12 * rows_ * vocabulary_)),
        fns_(HWY_DYNAMIC_DISPATCH(SelectCrossEntropy)(logits.dtype)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* targets = args.i32(1);
    PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(targets, rows_, vocabulary_));
    const float factor =
        count == 0
            ? 0.0f
            : static_cast<float>(static_cast<double>(args.f32(3)[0]) / static_cast<double>(count));
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(rows_, tasks_, task);
      const LogitRows rows = {args.in[0], range.begin, range.end, vocabulary_};
      if (objective_.IsCrossEntropy()) {
        fns_.gradient(rows, targets, args.f32(2), factor, args.out[0]);
      } else {
        fns_.objective_gradient(rows, targets, args.f32(2), objective_, factor, args.out[0]);
      }
    });
    return absl::OkStatus();
  }

 private:
  const Objective objective_;
  const int64_t rows_;
  const int64_t vocabulary_;
  const int64_t tasks_;
  const CrossEntropyFns fns_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeCrossEntropyGradKernel(const OpTypes& types) {
  return std::make_unique<CrossEntropyGradKernel>(types.in(0), Objective(types.attrs));
}

// -- References

absl::Status ReferenceCrossEntropy(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  const Objective objective(args.attrs);
  double sum = 0, objective_sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double* x = &args.f(0)[static_cast<size_t>(r * n)];
    const double top = *std::max_element(x, x + n);
    double total = 0;
    for (int64_t j = 0; j < n; ++j) total += std::exp(x[j] - top);
    const double lse = top + std::log(total);
    args.out(1)[static_cast<size_t>(r)] = lse;
    if (const int32_t target = args.i(1)[static_cast<size_t>(r)]; target >= 0) {
      sum += lse - x[target];
      if (OutputsRows(args.attrs)) args.outputs.back()->f[static_cast<size_t>(r)] = lse - x[target];
      double mean = 0;
      for (int64_t j = 0; j < n; ++j) mean += (lse - x[j]) / static_cast<double>(n);
      const double e = objective.label_smoothing;
      objective_sum += (1 - e) * (lse - x[target]) + e * mean + objective.z_loss * lse * lse;
    }
  }
  args.out(0)[0] = count == 0 ? 0 : sum / static_cast<double>(count);
  if (!objective.IsCrossEntropy()) {
    args.out(2)[0] = count == 0 ? 0 : objective_sum / static_cast<double>(count);
  }
  return absl::OkStatus();
}

absl::Status ReferenceCrossEntropyGrad(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  const Objective objective(args.attrs);
  const double e = objective.label_smoothing;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t target = args.i(1)[static_cast<size_t>(r)];
    if (target < 0) continue;
    for (int64_t j = 0; j < n; ++j) {
      const size_t at = static_cast<size_t>(r * n + j);
      const double lse = args.f(2)[static_cast<size_t>(r)], p = std::exp(args.f(0)[at] - lse);
      args.out(0)[at] = args.f(3)[0] / static_cast<double>(count) *
                        (p * (1 + 2 * objective.z_loss * lse) - e / static_cast<double>(n) -
                         (j == target ? 1 - e : 0));
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
  op.infer = InferCrossEntropy;
  op.vjp = VjpCrossEntropy;
  op.make_kernel = MakeCrossEntropyKernel;
  op.reference = ReferenceCrossEntropy;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "cross_entropy_grad";
  grad.min_inputs = grad.max_inputs = 4;
  grad.may_alias = {{0, 0}};
  grad.infer = InferCrossEntropyGrad;
  grad.make_kernel = MakeCrossEntropyGradKernel;
  grad.reference = ReferenceCrossEntropyGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
#endif  // HWY_ONCE
