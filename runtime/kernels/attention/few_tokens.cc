// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/attention/few_tokens.h"

#include <limits>

#include "runtime/kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/few_tokens.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/exp-inl.h"
#include "runtime/kernels/simd/tail-inl.h"

#ifndef PLUMB_FEW_TOKENS
#define PLUMB_FEW_TOKENS
namespace plumb {
namespace {
// With more tokens, or eight channels in a head, the blocks of attention.h are as fast.
constexpr int64_t kFewTokens = 64;
constexpr int kMaxLogHeadDim = 2;
}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR
FewTokensFns ForHeadDim(int64_t, int64_t, int64_t) { return {nullptr, nullptr}; }
#else

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
using Indices = hn::RebindToSigned<Floats>;
constexpr int64_t kVectorLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// Returns in each lane the sum of its head's lanes, of which there are 2^kLog.
template <int kLog>
HWY_INLINE Vector SumHeads(Vector x) {
  if constexpr (kLog > 0) x = hn::Add(x, hn::Shuffle2301(x));
  if constexpr (kLog > 1) x = hn::Add(x, hn::Shuffle1032(x));
  return x;
}

// Returns the offsets in lse[heads, tokens] of the heads of the lanes from channel `begin` on.
template <int kLog>
HWY_INLINE hn::Vec<Indices> LseOffsets(int64_t begin, int64_t tokens) {
  const Indices d;
  const auto heads = hn::ShiftRight<kLog>(hn::Iota(d, static_cast<int32_t>(begin)));
  return hn::Mul(heads, hn::Set(d, static_cast<int32_t>(tokens)));
}

template <int kLog>
void AttendFew(const FewTokensArgs& args) {
  const Floats d;
  const int64_t width = args.heads * args.head_dim;
  const Vector scale = hn::Set(d, args.scale * kLog2E);
  for (int64_t c = 0; c < width; c += kVectorLanes) {
    const auto lse_offsets = LseOffsets<kLog>(c, args.tokens);
    for (int64_t i = 0; i < args.tokens; ++i) {
      HWY_ALIGN float scores[kFewTokens * kVectorLanes];
      const Vector q = hn::Mul(hn::LoadU(d, args.q + i * width + c), scale);
      Vector max = hn::Set(d, -std::numeric_limits<float>::infinity());
      for (int64_t j = 0; j <= i; ++j) {
        const Vector k = hn::LoadU(d, args.k + j * width + c);
        const Vector score = SumHeads<kLog>(hn::Mul(q, k));
        max = hn::Max(max, score);
        hn::Store(score, d, scores + j * kVectorLanes);
      }
      Vector sum = hn::Zero(d), context = hn::Zero(d);
      for (int64_t j = 0; j <= i; ++j) {
        const Vector score = hn::Load(d, scores + j * kVectorLanes);
        const Vector p = FastExp2(d, hn::Sub(score, max));
        sum = hn::Add(sum, p);
        context = hn::MulAdd(p, hn::LoadU(d, args.v + j * width + c), context);
      }
      hn::StoreU(hn::Div(context, sum), d, args.context + i * width + c);
      const Vector lse = hn::MulAdd(max, hn::Set(d, kLn2), hn::Log(d, sum));
      hn::ScatterIndex(lse, d, args.lse + i, lse_offsets);  // the lanes of a head are equal
    }
  }
}

// Computes the gradients by the equations of backward.cc.
template <int kLog>
void AttendFewGrad(const FewTokensGradArgs& args) {
  const Floats d;
  const int64_t width = args.heads * args.head_dim;
  const Vector scale = hn::Set(d, args.scale), log_scale = hn::Set(d, args.scale * kLog2E);
  for (int64_t c = 0; c < width; c += kVectorLanes) {
    const auto lse_offsets = LseOffsets<kLog>(c, args.tokens);
    HWY_ALIGN float dk[kFewTokens * kVectorLanes] = {}, dv[kFewTokens * kVectorLanes] = {};
    for (int64_t i = 0; i < args.tokens; ++i) {
      const int64_t at = i * width + c;
      const Vector q = hn::LoadU(d, args.q + at), q_scaled = hn::Mul(q, log_scale);
      const Vector dcontext = hn::LoadU(d, args.dcontext + at);
      const Vector dot = SumHeads<kLog>(hn::Mul(dcontext, hn::LoadU(d, args.context + at)));
      const Vector lse = hn::Mul(hn::GatherIndex(d, args.lse + i, lse_offsets), hn::Set(d, kLog2E));
      Vector dq = hn::Zero(d);
      for (int64_t j = 0; j <= i; ++j) {
        const Vector k = hn::LoadU(d, args.k + j * width + c);
        const Vector v = hn::LoadU(d, args.v + j * width + c);
        const Vector p = FastExp2(d, hn::Sub(SumHeads<kLog>(hn::Mul(q_scaled, k)), lse));
        const Vector ds = hn::Mul(p, hn::Sub(SumHeads<kLog>(hn::Mul(dcontext, v)), dot));
        dq = hn::MulAdd(ds, k, dq);
        float *const dk_j = dk + j * kVectorLanes, *const dv_j = dv + j * kVectorLanes;
        hn::Store(hn::MulAdd(ds, q, hn::Load(d, dk_j)), d, dk_j);
        hn::Store(hn::MulAdd(p, dcontext, hn::Load(d, dv_j)), d, dv_j);
      }
      hn::StoreU(hn::Mul(dq, scale), d, args.dq + at);
    }
    for (int64_t j = 0; j < args.tokens; ++j) {
      const Vector sum = hn::Load(d, dk + j * kVectorLanes);
      hn::StoreU(hn::Mul(sum, scale), d, args.dk + j * width + c);
      hn::StoreU(hn::Load(d, dv + j * kVectorLanes), d, args.dv + j * width + c);
    }
  }
}

template <int kLog = 0>
FewTokensFns ForHeadDim(int64_t tokens, int64_t heads, int64_t head_dim) {
  if constexpr (kLog <= kMaxLogHeadDim) {
    if (head_dim != 1 << kLog) return ForHeadDim<kLog + 1>(tokens, heads, head_dim);
    if (tokens > kFewTokens || heads * head_dim % kVectorLanes != 0) return {nullptr, nullptr};
    return {AttendFew<kLog>, AttendFewGrad<kLog>};
  }
  return {nullptr, nullptr};
}
#endif  // HWY_SCALAR

FewTokensFns SelectFewTokens(int64_t tokens, int64_t heads, int64_t head_dim) {
  return ForHeadDim(tokens, heads, head_dim);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectFewTokens);

FewTokensFns ChooseFewTokens(int64_t tokens, int64_t heads, int64_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(SelectFewTokens)(tokens, heads, head_dim);
}

}  // namespace plumb
#endif  // HWY_ONCE
