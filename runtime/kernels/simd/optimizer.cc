// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/simd/split_f32.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/optimizer.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/split_f32-inl.h"

#ifndef PLUMB_OPTIMIZER_TYPES
#define PLUMB_OPTIMIZER_TYPES
namespace plumb {
namespace {

// Factors of one segment's update, including bias corrections.
struct AdamWFactors {
  float grad_scale;
  float decay;  // 1 - lr * weight_decay
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;
  float step_size;    // lr / (1 - beta1^t)
  float root_factor;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

// Moments and gradient of n elements. Their parameters are a separate argument, floats or split.
struct AdamWStretch {
  const float* grad;
  float* m;
  float* v;
  int64_t n;
};

struct OptimizerFns {
  void (*adamw)(const AdamWFactors& f, const AdamWStretch& stretch, float* param);
  void (*adamw_split)(const AdamWFactors& f, const AdamWStretch& stretch, const SplitF32& param);
  double (*sum_of_squares)(const float* x, int64_t n);
  double (*accumulate)(const float* x, float* acc, int64_t n);
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

struct AdamWVectors {
  HWY_INLINE explicit AdamWVectors(const AdamWFactors& f)
      : grad_scale(hn::Set(D(), f.grad_scale)),
        decay(hn::Set(D(), f.decay)),
        beta1(hn::Set(D(), f.beta1)),
        beta2(hn::Set(D(), f.beta2)),
        one_minus_beta1(hn::Set(D(), f.one_minus_beta1)),
        one_minus_beta2(hn::Set(D(), f.one_minus_beta2)),
        step_size(hn::Set(D(), f.step_size)),
        root_factor(hn::Set(D(), f.root_factor)),
        eps(hn::Set(D(), f.eps)) {}

  HWY_INLINE void Update(V g, V* p, V* m, V* v) const {
    g = hn::Mul(g, grad_scale);
    *m = hn::MulAdd(beta1, *m, hn::Mul(one_minus_beta1, g));
    *v = hn::MulAdd(beta2, *v, hn::Mul(one_minus_beta2, hn::Mul(g, g)));
    const V root = hn::MulAdd(Root(*v), root_factor, eps);
    *p = hn::NegMulAdd(step_size, hn::Mul(*m, Reciprocal(root)), hn::Mul(*p, decay));
  }

  // With 12 bits of the reciprocals, a Newton step is as accurate as f32, in half the time of Sqrt
  // and Div. Other processors have fewer bits.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  static HWY_INLINE V Root(V x) {
    const D d;
    // The reciprocals of zero and of infinity would be infinity and zero.
    const V safe = hn::Clamp(x, hn::Set(d, std::numeric_limits<float>::min()),
                             hn::Set(d, std::numeric_limits<float>::max()));
    const V r = hn::ApproximateReciprocalSqrt(safe);
    const V root = hn::Mul(safe, r);
    return hn::MulAdd(hn::Mul(hn::Set(d, 0.5f), r), hn::NegMulAdd(root, root, safe), root);
  }
  static HWY_INLINE V Reciprocal(V x) {
    const V r = hn::ApproximateReciprocal(x);
    return hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(D(), 1.0f)), r);
  }
#else
  static HWY_INLINE V Root(V x) { return hn::Sqrt(x); }
  static HWY_INLINE V Reciprocal(V x) { return hn::Div(hn::Set(D(), 1.0f), x); }
#endif

  V grad_scale, decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, root_factor, eps;
};

// Param is float*, with Tail for its last vector, or SplitF32, with SplitF32Tail.
template <class ParamTail, class Param>
HWY_INLINE void AdamW(const AdamWFactors& factors, const AdamWStretch& stretch, Param param) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = stretch.n;
  const AdamWVectors vectors(factors);
  const float* grad = stretch.grad;
  float* moment1 = stretch.m;
  float* moment2 = stretch.v;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V p = LoadFloats(d, param + i), m = hn::LoadU(d, moment1 + i), v = hn::LoadU(d, moment2 + i);
    vectors.Update(hn::LoadU(d, grad + i), &p, &m, &v);
    StoreFloats(p, d, param + i);
    hn::StoreU(m, d, moment1 + i);
    hn::StoreU(v, d, moment2 + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    const ParamTail param_tail(d, n - i);
    V p = param_tail.Load(d, param + i);
    V m = tail.Load(d, moment1 + i), v = tail.Load(d, moment2 + i);
    vectors.Update(tail.Load(d, grad + i), &p, &m, &v);
    param_tail.Store(p, d, param + i);
    tail.Store(m, d, moment1 + i);
    tail.Store(v, d, moment2 + i);
  }
}
void AdamWFloats(const AdamWFactors& factors, const AdamWStretch& stretch, float* param) {
  AdamW<Tail<D>>(factors, stretch, param);
}
void AdamWSplit(const AdamWFactors& factors, const AdamWStretch& stretch, const SplitF32& param) {
  AdamW<SplitF32Tail<D>>(factors, stretch, param);
}

// Sums squares in double, in independent accumulators to hide the latency of the additions.
class SquareSums {
 public:
  using Wide = hn::ScalableTag<double>;
  using Narrow = hn::Rebind<float, Wide>;
  static int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(Wide())); }

  HWY_INLINE SquareSums()
      : s0_(hn::Zero(Wide())),
        s1_(hn::Zero(Wide())),
        s2_(hn::Zero(Wide())),
        s3_(hn::Zero(Wide())) {}

  // Adds the squares of four vectors, load(0) to load(3).
  template <class Load>
  HWY_INLINE void AddFour(const Load& load) {
    const Wide d;
    const auto a = hn::PromoteTo(d, load(0)), b = hn::PromoteTo(d, load(1));
    const auto c = hn::PromoteTo(d, load(2)), e = hn::PromoteTo(d, load(3));
    s0_ = hn::MulAdd(a, a, s0_);
    s1_ = hn::MulAdd(b, b, s1_);
    s2_ = hn::MulAdd(c, c, s2_);
    s3_ = hn::MulAdd(e, e, s3_);
  }
  HWY_INLINE double Total() const {
    return hn::GetLane(hn::SumOfLanes(Wide(), hn::Add(hn::Add(s0_, s1_), hn::Add(s2_, s3_))));
  }

 private:
  hn::Vec<Wide> s0_, s1_, s2_, s3_;
};

double SumSquares(const float* x, int64_t n) {
  const SquareSums::Narrow narrow;
  const int64_t lanes = SquareSums::Lanes();
  SquareSums sums;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sums.AddFour([&](int j) HWY_ATTR { return hn::LoadU(narrow, x + i + j * lanes); });
  }
  double sum = sums.Total();
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

double Add(const float* x, float* acc, int64_t n) {
  const SquareSums::Narrow narrow;
  const int64_t lanes = SquareSums::Lanes();
  SquareSums sums;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sums.AddFour([&](int j) HWY_ATTR {
      const int64_t at = i + j * lanes;
      const auto added = hn::Add(hn::LoadU(narrow, acc + at), hn::LoadU(narrow, x + at));
      hn::StoreU(added, narrow, acc + at);
      return added;
    });
  }
  double sum = sums.Total();
  for (; i < n; ++i) {
    acc[i] += x[i];
    sum += static_cast<double>(acc[i]) * static_cast<double>(acc[i]);
  }
  return sum;
}

OptimizerFns SelectOptimizer() { return {AdamWFloats, AdamWSplit, SumSquares, Add}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectOptimizer);

namespace {

OptimizerFns Functions() { return HWY_DYNAMIC_DISPATCH(SelectOptimizer)(); }

// Number of elements of a task, worth the cost of waking a thread.
constexpr int64_t kTaskElements = 32768;

int64_t Tasks(int64_t n) { return CeilDiv(n, kTaskElements); }

// Returns the sum of sum_of(begin, length) over stretches of [0, n) of fixed size, added in order.
template <class MakeSum>
double SumOverTasks(int64_t n, int threads, const MakeSum& sum_of) {
  // The number of partial sums at a time is bounded, so that memory does not grow with n.
  std::array<double, 64> partial;
  const int64_t wave = static_cast<int64_t>(partial.size()) * kTaskElements;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += wave) {
    const int64_t tasks = Tasks(std::min(wave, n - begin));
    ParallelFor(tasks, threads, [&](int64_t task) {
      const int64_t from = begin + task * kTaskElements;
      partial[static_cast<size_t>(task)] = sum_of(from, std::min(kTaskElements, n - from));
    });
    for (int64_t i = 0; i < tasks; ++i) sum += partial[static_cast<size_t>(i)];
  }
  return sum;
}

}  // namespace

namespace {

// Computes the factors of a segment's update; caches those of its group until the group changes.
class FactorsOfSegments {
 public:
  explicit FactorsOfSegments(const AdamWStep& step) : step_(step) {}

  const AdamWFactors& Of(const AdamWSegment& segment) {
    if (segment.group != group_) SetGroup(segment.group);
    const double scale = segment.lr_scale, offset = segment.lr_offset;
    const double rate = static_cast<double>(step_.learning_rate) * scale + offset;
    factors_.step_size = static_cast<float>(step_size_ * scale + offset / correction_);
    factors_.decay = static_cast<float>(1 - rate * static_cast<double>(segment.weight_decay));
    return factors_;
  }

 private:
  void SetGroup(int32_t index) {
    group_ = index;
    const AdamWGroup& group = step_.groups[static_cast<size_t>(index)];
    const double beta1 = group.beta1, beta2 = group.beta2, t = static_cast<double>(step_.step);
    correction_ = 1 - std::pow(beta1, t);
    step_size_ = step_.learning_rate / correction_;
    factors_.grad_scale = group.grad_scale;
    factors_.beta1 = group.beta1;
    factors_.beta2 = group.beta2;
    factors_.one_minus_beta1 = static_cast<float>(1 - beta1);
    factors_.one_minus_beta2 = static_cast<float>(1 - beta2);
    factors_.root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t)));
    factors_.eps = group.eps;
  }

  const AdamWStep step_;
  int32_t group_ = -1;
  double correction_ = 1, step_size_ = 0;
  AdamWFactors factors_;
};

}  // namespace

void AdamWUpdate(absl::Span<const AdamWSegment> segments, const AdamWStep& step,
                 const AdamWBuffers& buffers, int threads) {
  if (segments.empty()) return;
  const OptimizerFns fns = Functions();
  // Tasks are equal blocks of the buffers, independent of the segments.
  const int64_t first = segments.front().begin, last = segments.back().end;
  ParallelFor(Tasks(last - first), threads, [&](int64_t task) {
    const int64_t begin = first + task * kTaskElements;
    const int64_t end = std::min(last, begin + kTaskElements);
    FactorsOfSegments factors_of(step);
    const AdamWSegment* segment = std::partition_point(
        segments.begin(), segments.end(), [&](const AdamWSegment& s) { return s.end <= begin; });
    for (; segment != segments.end() && segment->begin < end; ++segment) {
      const AdamWFactors& factors = factors_of.Of(*segment);
      const int64_t from = std::max(begin, segment->begin);
      const int64_t to = std::min(end, segment->end);
      const AdamWStretch stretch = {buffers.grad + from, buffers.m + from,
                                    buffers.v + (from + segment->v_offset), to - from};
      if (segment->is_split) {
        const SplitF32 all =
            segment->planes.high != nullptr
                ? segment->planes
                : SplitF32In(buffers.param + segment->begin, segment->end - segment->begin);
        fns.adamw_split(factors, stretch, all + (from - segment->begin));
      } else {
        float* const all =
            segment->floats != nullptr ? segment->floats : buffers.param + segment->begin;
        fns.adamw(factors, stretch, all + (from - segment->begin));
      }
    }
  });
}

double SumOfSquares(const float* x, int64_t n, int threads) {
  const OptimizerFns fns = Functions();
  return SumOverTasks(n, threads, [&](int64_t begin, int64_t length) {
    return fns.sum_of_squares(x + begin, length);
  });
}

double Accumulate(const float* x, float* acc, int64_t n, int threads) {
  const OptimizerFns fns = Functions();
  return SumOverTasks(n, threads, [&](int64_t begin, int64_t length) {
    return fns.accumulate(x + begin, acc + begin, length);
  });
}

void Copy(const float* x, float* to, int64_t n, int threads) {
  ParallelFor(Tasks(n), threads, [&](int64_t task) {
    const int64_t begin = task * kTaskElements;
    std::copy_n(x + begin, std::min(kTaskElements, n - begin), to + begin);
  });
}

}  // namespace plumb
#endif  // HWY_ONCE
