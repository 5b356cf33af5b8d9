#include "runtime/ops/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/optimizer.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

#ifndef PLUMB_OPTIMIZER_TYPES
#define PLUMB_OPTIMIZER_TYPES
namespace plumb {
namespace {

// What one segment's update needs, bias corrections folded in.
struct AdamWFactors {
  float grad_scale;
  float decay;  // 1 - lr * weight_decay
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;
  float step_size;    // lr / (1 - beta1^t)
  float root_factor;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

struct OptimizerFns {
  void (*adamw)(const AdamWFactors& f, const float* grad, float* param, float* m, float* v,
                int64_t n);
  double (*sum_of_squares)(const float* x, int64_t n);
  void (*accumulate)(const float* x, float* acc, int64_t n);
  bool (*all_finite)(const float* x, int64_t n);
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
    const V root = hn::MulAdd(hn::Sqrt(*v), root_factor, eps);
    *p = hn::NegMulAdd(step_size, hn::Div(*m, root), hn::Mul(*p, decay));
  }

  V grad_scale, decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, root_factor, eps;
};

void AdamW(const AdamWFactors& factors, const float* grad, float* param, float* moment1,
           float* moment2, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const AdamWVectors vectors(factors);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V p = hn::LoadU(d, param + i), m = hn::LoadU(d, moment1 + i), v = hn::LoadU(d, moment2 + i);
    vectors.Update(hn::LoadU(d, grad + i), &p, &m, &v);
    hn::StoreU(p, d, param + i);
    hn::StoreU(m, d, moment1 + i);
    hn::StoreU(v, d, moment2 + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    V p = tail.Load(d, param + i), m = tail.Load(d, moment1 + i), v = tail.Load(d, moment2 + i);
    vectors.Update(tail.Load(d, grad + i), &p, &m, &v);
    tail.Store(p, d, param + i);
    tail.Store(m, d, moment1 + i);
    tail.Store(v, d, moment2 + i);
  }
}

double SumSquares(const float* x, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> from;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = hn::PromoteTo(d, hn::LoadU(from, x + i));
    const auto b = hn::PromoteTo(d, hn::LoadU(from, x + i + lanes));
    const auto c = hn::PromoteTo(d, hn::LoadU(from, x + i + 2 * lanes));
    const auto e = hn::PromoteTo(d, hn::LoadU(from, x + i + 3 * lanes));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void Add(const float* x, float* acc, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, acc + i), hn::LoadU(d, x + i)), d, acc + i);
  }
  for (; i < n; ++i) acc[i] += x[i];
}

bool AllFinite(const float* x, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // x - x is 0 for finite x, else NaN; and a sum keeps a NaN.
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    sum = hn::Add(sum, hn::Sub(v, v));
  }
  bool finite = hn::AllTrue(d, hn::Eq(sum, sum));
  for (; i < n; ++i) finite = finite && std::isfinite(x[i]);
  return finite;
}

OptimizerFns SelectOptimizer() { return {AdamW, SumSquares, Add, AllFinite}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectOptimizer);

namespace {

OptimizerFns Functions() { return HWY_DYNAMIC_DISPATCH(SelectOptimizer)(); }

// Elements of one task: enough work to be worth a thread's waking.
constexpr int64_t kTaskElements = 32768;

int64_t Tasks(int64_t n) { return (n + kTaskElements - 1) / kTaskElements; }

}  // namespace

void AdamWUpdate(absl::Span<const AdamWSegment> segments, const AdamWStep& step, const float* grad,
                 float* param, float* m, float* v, int threads) {
  if (segments.empty()) return;
  const OptimizerFns fns = Functions();
  const double beta1 = step.beta1, beta2 = step.beta2, t = static_cast<double>(step.step);
  const double step_size = step.learning_rate / (1 - std::pow(beta1, t));
  AdamWFactors shared;
  shared.grad_scale = step.grad_scale;
  shared.beta1 = step.beta1;
  shared.beta2 = step.beta2;
  shared.one_minus_beta1 = static_cast<float>(1 - beta1);
  shared.one_minus_beta2 = static_cast<float>(1 - beta2);
  shared.root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t)));
  shared.eps = step.eps;

  // Tasks are equal stretches of the buffers, whatever segments lie in them.
  const int64_t first = segments.front().begin, last = segments.back().end;
  ParallelFor(Tasks(last - first), threads, [&](int64_t task) {
    const int64_t begin = first + task * kTaskElements;
    const int64_t end = std::min(last, begin + kTaskElements);
    const AdamWSegment* segment = std::partition_point(
        segments.begin(), segments.end(), [&](const AdamWSegment& s) { return s.end <= begin; });
    for (; segment != segments.end() && segment->begin < end; ++segment) {
      AdamWFactors factors = shared;
      const double lr_scale = segment->lr_scale;
      factors.step_size = static_cast<float>(step_size * lr_scale);
      factors.decay = static_cast<float>(1 - static_cast<double>(step.learning_rate) * lr_scale *
                                                 static_cast<double>(segment->weight_decay));
      const int64_t from = std::max(begin, segment->begin);
      const int64_t to = std::min(end, segment->end);
      fns.adamw(factors, grad + from, param + from, m + from, v + from, to - from);
    }
  });
}

double SumOfSquares(const float* x, int64_t n, int threads) {
  const OptimizerFns fns = Functions();
  // A wave of partial sums at a time, so that no memory need grow with n.
  std::array<double, 64> partial;
  const int64_t wave = static_cast<int64_t>(partial.size()) * kTaskElements;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += wave) {
    const int64_t tasks = Tasks(std::min(wave, n - begin));
    ParallelFor(tasks, threads, [&](int64_t task) {
      const int64_t from = begin + task * kTaskElements;
      partial[static_cast<size_t>(task)] =
          fns.sum_of_squares(x + from, std::min(kTaskElements, n - from));
    });
    for (int64_t i = 0; i < tasks; ++i) sum += partial[static_cast<size_t>(i)];
  }
  return sum;
}

void Accumulate(const float* x, float* acc, int64_t n, int threads) {
  const OptimizerFns fns = Functions();
  ParallelFor(Tasks(n), threads, [&](int64_t task) {
    const int64_t from = task * kTaskElements;
    fns.accumulate(x + from, acc + from, std::min(kTaskElements, n - from));
  });
}

int64_t FirstNonFinite(const float* x, int64_t n) {
  const OptimizerFns fns = Functions();
  for (int64_t begin = 0; begin < n; begin += kTaskElements) {
    const int64_t end = std::min(n, begin + kTaskElements);
    if (fns.all_finite(x + begin, end - begin)) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (!std::isfinite(x[i])) return i;
    }
  }
  return -1;
}

}  // namespace plumb
#endif  // HWY_ONCE
