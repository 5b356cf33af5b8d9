// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/linear_attention/forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/linear_attention/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// With at most this many tokens, chunks cost more than steps.
constexpr int64_t kMaxSteps = 4;

// Processes one token. `coefficients` has room for four padded rows of keys.
template <class T>
void RecurStep(const RecurrenceArgs<T>& args, int64_t t, float* coefficients) {
  const RecurTag d;
  const int64_t keys = args.key_dim, values = args.value_dim, kp = PaddedWidth(keys);
  float *const q = coefficients, *const k = q + kp, *const decay = k + kp, *const seen = decay + kp;
  LoadRows(args.q + t * args.qk_stride, 0, 1, keys, q, kp);
  LoadRows(args.k + t * args.qk_stride, 0, 1, keys, k, kp);
  if (args.decay_per_key) {
    LoadRows(args.decay + t * args.decay_stride, 0, 1, keys, decay, kp);
  } else {
    std::fill_n(decay, kp,
                args.decay == nullptr ? 0.0f : GetElement(args.decay + t * args.decay_stride));
  }
  for (int64_t c = 0; c < kp; c += RecurLanes()) {
    const RecurVec factor = FastExp(d, hn::Load(d, decay + c));
    hn::Store(factor, d, decay + c);
    hn::Store(hn::Mul(factor, hn::Load(d, k + c)), d, seen + c);
  }
  const bool delta = args.beta != nullptr;
  const RecurVec beta = hn::Set(d, delta ? GetElement(args.beta + t * args.beta_stride) : 1.0f);
  ForVectors(d, 0, values, [&](const auto& io, int64_t e) HWY_ATTR {
    float* const column = args.state + e;
    RecurVec known = hn::Zero(d);
    for (int64_t c = 0; delta && c < keys; ++c) {
      known = hn::MulAdd(hn::Set(d, seen[c]), io.Load(d, column + c * values), known);
    }
    const RecurVec u = hn::Mul(beta, hn::Sub(io.Load(d, args.v + t * args.v_stride + e), known));
    RecurVec out = hn::Zero(d);
    for (int64_t c = 0; c < keys; ++c) {
      const RecurVec kept = hn::Mul(hn::Set(d, decay[c]), io.Load(d, column + c * values));
      const RecurVec h = hn::MulAdd(hn::Set(d, k[c]), u, kept);
      io.Store(h, d, column + c * values);
      out = hn::MulAdd(hn::Set(d, q[c]), h, out);
    }
    io.Store(out, d, args.context + t * args.v_stride + e);
  });
}

template <class T>
void Recur(const RecurrenceArgs<T>& args, float* memory) {
  if (args.starts == nullptr && args.tokens <= kMaxSteps) {
    for (int64_t t = 0; t < args.tokens; ++t) RecurStep(args, t, memory);
    return;
  }
  RecurrenceScratch scratch(memory);
  Chunk chunk(args, &scratch);
  float* const out = scratch.Take(Chunk::kC * chunk.vp);
  const int64_t kp = chunk.kp, vp = chunk.vp, keys = args.key_dim, values = args.value_dim;
  std::fill_n(chunk.h, kp * vp, 0.0f);
  LoadRows(args.state, values, keys, values, chunk.h, vp);
  float* starts = args.starts;
  for (int64_t first = 0; first < args.tokens; first += Chunk::kC) {
    if (starts != nullptr) {
      StoreRows(chunk.h, vp, keys, values, starts, values);
      starts += keys * values;
    }
    chunk.LoadKeys(args, first);
    chunk.Load(args, first);
    chunk.Solve(nullptr);
    const int64_t n = chunk.n;
    chunk.products.Plain(n, vp, kp, chunk.q_decayed, kp, chunk.h, vp, false, out, vp);
    chunk.products.Plain(n, vp, n, chunk.p, Chunk::kC, chunk.u, vp, true, out, vp);
    StoreRows(out, vp, n, values, args.context + first * args.v_stride, args.v_stride);
    chunk.DecayState(chunk.h);
    chunk.products.LeftTransposed(kp, vp, n, chunk.k_to_end, kp, chunk.u, vp, true, chunk.h, vp);
  }
  StoreRows(chunk.h, vp, keys, values, args.state, values);
}

RecurFn<float> SelectRecurF32() { return &Recur<float>; }
RecurFn<uint16_t> SelectRecurBf16() { return &Recur<uint16_t>; }

int64_t MeasureRecur(int64_t key_dim, int64_t value_dim) {
  RecurrenceArgs<float> args = {};
  args.key_dim = key_dim;
  args.value_dim = value_dim;
  RecurrenceScratch scratch(nullptr);
  const Chunk chunk(args, &scratch);
  scratch.Take(Chunk::kC * chunk.vp);
  return scratch.used();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectRecurF32);
HWY_EXPORT(SelectRecurBf16);
HWY_EXPORT(MeasureRecur);

template <>
RecurFn<float> ChooseRecur<float>() {
  return HWY_DYNAMIC_DISPATCH(SelectRecurF32)();
}
template <>
RecurFn<uint16_t> ChooseRecur<uint16_t>() {
  return HWY_DYNAMIC_DISPATCH(SelectRecurBf16)();
}
int64_t RecurScratch(int64_t key_dim, int64_t value_dim) {
  return HWY_DYNAMIC_DISPATCH(MeasureRecur)(key_dim, value_dim);
}

}  // namespace plumb
#endif  // HWY_ONCE
