// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <algorithm>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd/muon.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/split_f32-inl.h"

#ifndef PLUMB_MUON_TYPES
#define PLUMB_MUON_TYPES
namespace plumb {
namespace {

struct MuonFns {
  void (*momentum)(const MuonMomentum& momentum, const float* grad, int64_t n, float* m,
                   float* direction);
  void (*scale)(float factor, int64_t n, float* x);
  void (*step)(const float* direction, float decay, float step_size, int64_t n, float* p);
  void (*step_split)(const float* direction, float decay, float step_size, int64_t n,
                     const SplitF32& p);
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

void Momentum(const MuonMomentum& momentum, const float* grad, int64_t n, float* m,
              float* direction) {
  const D d;
  const V scale = hn::Set(d, momentum.grad_scale), beta = hn::Set(d, momentum.beta);
  const V rest = hn::Set(d, 1.0f - momentum.beta);
  const bool nesterov = momentum.nesterov;
  ForVectors(d, 0, n, [=](const auto& io, int64_t i) HWY_ATTR {
    const V g = hn::Mul(io.Load(d, grad + i), scale);
    const V old = io.Load(d, m + i);
    const V now = hn::MulAdd(rest, hn::Sub(g, old), old);
    io.Store(now, d, m + i);
    io.Store(nesterov ? hn::MulAdd(beta, hn::Sub(now, g), g) : now, d, direction + i);
  });
}

void ScaleFloats(float factor, int64_t n, float* x) {
  const D d;
  const V by = hn::Set(d, factor);
  ForVectors(d, 0, n, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(hn::Mul(io.Load(d, x + i), by), d, x + i);
  });
}

// Param is float*, with Tail for its last vector, or SplitF32, with SplitF32Tail.
template <class ParamTail, class Param>
HWY_INLINE void Step(const float* direction, float decay, float step_size, int64_t n, Param p) {
  const D d;
  const V decay_v = hn::Set(d, decay), size = hn::Set(d, step_size);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V old = hn::Mul(LoadFloats(d, p + i), decay_v);
    StoreFloats(hn::NegMulAdd(size, hn::LoadU(d, direction + i), old), d, p + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    const ParamTail param_tail(d, n - i);
    const V old = hn::Mul(param_tail.Load(d, p + i), decay_v);
    param_tail.Store(hn::NegMulAdd(size, tail.Load(d, direction + i), old), d, p + i);
  }
}
void StepFloats(const float* direction, float decay, float step_size, int64_t n, float* p) {
  Step<Tail<D>>(direction, decay, step_size, n, p);
}
void StepSplit(const float* direction, float decay, float step_size, int64_t n, const SplitF32& p) {
  Step<SplitF32Tail<D>>(direction, decay, step_size, n, p);
}

MuonFns SelectMuon() { return {Momentum, ScaleFloats, StepFloats, StepSplit}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectMuon);

namespace {

MuonFns MuonFunctions() { return HWY_DYNAMIC_DISPATCH(SelectMuon)(); }

// Calls body(begin, length) for stretches of [0, n), whose fixed size is worth waking a thread.
template <class Body>
void ForEachChunk(int64_t n, int threads, const Body& body) {
  constexpr int64_t kStretch = 32768;
  ParallelFor(CeilDiv(n, kStretch), threads, [&](int64_t task) {
    const int64_t begin = task * kStretch;
    body(begin, std::min(kStretch, n - begin));
  });
}

}  // namespace

void UpdateMomentum(const MuonMomentum& momentum, const float* grad, int64_t n, int threads,
                    float* m, float* direction) {
  const MuonFns fns = MuonFunctions();
  ForEachChunk(n, threads, [&](int64_t at, int64_t length) {
    fns.momentum(momentum, grad + at, length, m + at, direction + at);
  });
}

void Scale(float factor, int64_t n, int threads, float* x) {
  const MuonFns fns = MuonFunctions();
  ForEachChunk(n, threads, [&](int64_t at, int64_t length) { fns.scale(factor, length, x + at); });
}

void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               float* p) {
  const MuonFns fns = MuonFunctions();
  ForEachChunk(n, threads, [&](int64_t at, int64_t length) {
    fns.step(direction + at, decay, step_size, length, p + at);
  });
}

void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               const SplitF32& p) {
  const MuonFns fns = MuonFunctions();
  ForEachChunk(n, threads, [&](int64_t at, int64_t length) {
    fns.step_split(direction + at, decay, step_size, length, p + at);
  });
}

}  // namespace plumb
#endif  // HWY_ONCE
