// SPDX-License-Identifier: Apache-2.0
// Chunk: what forward and backward passes of linear attention compute alike for one chunk of tokens
// of one head. Included once per Highway target. Equations: linear_attention.h.
#if defined(PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#undef PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#else
#define PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "runtime/base/bf16.h"
#include "runtime/kernels/gemm/small_gemm.h"
#include "runtime/kernels/linear_attention/linear_attention.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/kernels/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RecurTag = hn::ScalableTag<float>;
using RecurVec = hn::Vec<RecurTag>;
HWY_INLINE int64_t RecurLanes() { return static_cast<int64_t>(hn::Lanes(RecurTag())); }

inline float GetElement(const float* x) { return *x; }
inline float GetElement(const uint16_t* x) { return FloatFromBf16(*x); }

HWY_INLINE float SumLanes(RecurVec v) { return hn::GetLane(hn::SumOfLanes(RecurTag(), v)); }

// Copies rows of `width` elements to rows of `padded` floats, with zeros behind them.
template <class T>
HWY_INLINE void LoadRows(const T* from, int64_t stride, int64_t rows, int64_t width, float* to,
                         int64_t padded) {
  const RecurTag d;
  for (int64_t t = 0; t < rows; ++t, from += stride, to += padded) {
    ForVectors(d, 0, width, [&](const auto& io, int64_t e) HWY_ATTR {
      hn::Store(io.Load(d, from + e), d, to + e);
    });
    for (int64_t e = RoundUp(width, RecurLanes()); e < padded; e += RecurLanes()) {
      hn::Store(hn::Zero(d), d, to + e);
    }
  }
}
// Copies the first `width` floats of padded rows.
template <class T>
HWY_INLINE void StoreRows(const float* from, int64_t padded, int64_t rows, int64_t width, T* to,
                          int64_t stride) {
  const RecurTag d;
  for (int64_t t = 0; t < rows; ++t, from += padded, to += stride) {
    ForVectors(d, 0, width, [&](const auto& io, int64_t e) HWY_ATTR {
      io.Store(hn::Load(d, from + e), d, to + e);
    });
  }
}

// Products of padded row-major matrices.
class ChunkProducts {
 public:
  explicit ChunkProducts(float* scratch) : scratch_(scratch) {}
  // Computes c[m, n] = a[m, k] b[k, n], or adds it to c.
  void Plain(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
             int64_t ldb, bool add, float* c, int64_t ldc) const {
    plain_({false, false, m, n, k, a, lda, b, ldb, add, c, ldc}, {}, scratch_);
  }
  // Computes the same with a[k, m] transposed.
  void LeftTransposed(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                      int64_t ldb, bool add, float* c, int64_t ldc) const {
    left_({true, false, m, n, k, a, lda, b, ldb, add, c, ldc}, {}, scratch_);
  }
  // Computes the same with b[n, k] transposed.
  void RightTransposed(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                       int64_t ldb, float* c, int64_t ldc) const {
    right_({false, true, m, n, k, a, lda, b, ldb, false, c, ldc}, {}, scratch_);
  }

 private:
  const SmallGemmFn plain_ = SelectSmallGemm(false, false);
  const SmallGemmFn left_ = SelectSmallGemm(true, false);
  const SmallGemmFn right_ = SelectSmallGemm(false, true);
  float* const scratch_;
};

class Chunk {
 public:
  static constexpr int64_t kC = kRecurrenceChunk;

  template <class T>
  Chunk(const RecurrenceArgs<T>& args, RecurrenceScratch* scratch)
      : per_key(args.decay_per_key),
        delta(args.beta != nullptr),
        kp(PaddedWidth(args.key_dim)),
        vp(PaddedWidth(args.value_dim)),
        products(scratch->Take(SmallGemmScratch(kMaxSmallGemmTerms))),
        q(scratch->Take(kC * kp)),
        k(scratch->Take(kC * kp)),
        decay(scratch->Take(kC * kp)),
        from_start(scratch->Take(kC * kp)),
        to_end(scratch->Take(kC * kp)),
        running(scratch->Take(kp)),
        q_decayed(scratch->Take(kC * kp)),
        k_decayed(scratch->Take(kC * kp)),
        k_to_end(scratch->Take(kC * kp)),
        anchored_keys(scratch->Take(kC * kp)),
        anchored_rows(scratch->Take(2 * kTriangle * kp)),
        u(scratch->Take(kC * vp)),
        h(scratch->Take(kp * vp)),
        a(scratch->Take(kC * kC)),
        p(scratch->Take(kC * kC)),
        pair_decay(scratch->Take(kC * kC)),
        beta(scratch->Take(kC)) {}

  template <class T>
  void LoadKeys(const RecurrenceArgs<T>& args, int64_t first) {
    n = std::min(kC, args.tokens - first);
    LoadRows(args.q + first * args.qk_stride, args.qk_stride, n, args.key_dim, q, kp);
    LoadRows(args.k + first * args.qk_stride, args.qk_stride, n, args.key_dim, k, kp);
  }

  // Loads the other operands, after LoadKeys, and computes what does not depend on H.
  template <class T>
  void Load(const RecurrenceArgs<T>& args, int64_t first) {
    LoadRows(args.v + first * args.v_stride, args.v_stride, n, args.value_dim, u, vp);
    for (int64_t t = 0; delta && t < n; ++t) {
      beta[t] = GetElement(args.beta + (first + t) * args.beta_stride);
    }
    LoadDecay(args, first);
    MultiplyRows(from_start, 1, q, q_decayed);
    MultiplyRows(to_end, 1, k, k_to_end);
    if (delta) MultiplyRows(from_start, -1, k, k_decayed);
    per_key ? PairByChannel() : PairByToken();
  }

  // Turns the values in u into U. Copies W to `w` if it is not null.
  void Solve(float* w) const {
    if (!delta) return;
    const RecurTag d;
    products.Plain(n, vp, kp, k_decayed, kp, h, vp, true, u, vp);
    for (int64_t first = 0; first < n; first += kTriangle) {
      const int64_t end = std::min(n, first + kTriangle);
      if (first > 0) {
        products.Plain(end - first, vp, first, a + first * kC, kC, u, vp, true, u + first * vp, vp);
      }
      for (int64_t t = first; t < end; ++t) {
        for (int64_t e = 0; e < vp; e += RecurLanes()) {
          RecurVec sum = hn::Load(d, u + t * vp + e);
          for (int64_t s = first; s < t; ++s) {
            sum = hn::MulAdd(hn::Set(d, a[t * kC + s]), hn::Load(d, u + s * vp + e), sum);
          }
          if (w != nullptr) hn::Store(sum, d, w + t * vp + e);
          hn::Store(hn::Mul(sum, hn::Set(d, beta[t])), d, u + t * vp + e);
        }
      }
    }
  }

  // Computes rows to_t = coefficient * factors_t * from_t, with from_start or to_end as factors.
  void MultiplyRows(const float* factors, float coefficient, const float* from, float* to) const {
    const RecurTag d;
    const RecurVec c = hn::Set(d, coefficient);
    for (int64_t t = 0; t < n; ++t) {
      const RecurVec of_token = hn::Set(d, factors[t]);
      for (int64_t e = t * kp; e < (t + 1) * kp; e += RecurLanes()) {
        const RecurVec factor = per_key ? hn::Load(d, factors + e) : of_token;
        hn::Store(hn::Mul(hn::Mul(c, factor), hn::Load(d, from + e)), d, to + e);
      }
    }
  }

  // Multiplies the rows of m [kp, vp] by the decay of the whole chunk.
  void DecayState(float* m) const {
    const RecurTag d;
    for (int64_t c = 0; c < kp; ++c) {
      const RecurVec factor = hn::Set(d, WholeDecay(c));
      for (int64_t e = 0; e < vp; e += RecurLanes()) {
        hn::Store(hn::Mul(factor, hn::Load(d, m + c * vp + e)), d, m + c * vp + e);
      }
    }
  }
  float WholeDecay(int64_t c) const { return from_start[per_key ? (n - 1) * kp + c : n - 1]; }

  // Sets anchored_keys to k_s times the decays of the tokens after s and before `first`, and
  // anchored_rows to q_t and, behind them, to k_t, times the decays from `first` to t, for t in
  // [first, end). Requires: per_key.
  void Anchor(int64_t first, int64_t end) const {
    const RecurTag d;
    for (int64_t e = 0; e < kp; e += RecurLanes()) {
      RecurVec factor = hn::Set(d, 1.0f);
      for (int64_t s = first - 1; s >= 0; --s) {
        hn::Store(hn::Mul(factor, hn::Load(d, k + s * kp + e)), d, anchored_keys + s * kp + e);
        factor = hn::Mul(factor, hn::Load(d, decay + s * kp + e));
      }
      factor = hn::Set(d, 1.0f);
      for (int64_t t = first; t < end; ++t) {
        factor = hn::Mul(factor, hn::Load(d, decay + t * kp + e));
        float* const to = anchored_rows + (t - first) * kp + e;
        hn::Store(hn::Mul(factor, hn::Load(d, q + t * kp + e)), d, to);
        hn::Store(hn::Mul(factor, hn::Load(d, k + t * kp + e)), d, to + kTriangle * kp);
      }
    }
  }

  const bool per_key, delta;
  const int64_t kp, vp;  // padded key_dim and value_dim
  const ChunkProducts products;
  int64_t n = 0;             // tokens
  float *const q, *const k;  // [kC, kp]
  // Products of decays, [kC] or [kC, kp]: of a token, of all up to it, of all after it.
  float *const decay, *const from_start, *const to_end;
  float* const running;                      // [kp]
  float *const q_decayed, *const k_decayed;  // Q * from_start, -K * from_start
  float* const k_to_end;                     // K * to_end
  float *const anchored_keys, *const anchored_rows;
  float* const u;            // [kC, vp]
  float* const h;            // H before the chunk, [kp, vp]
  float *const a, *const p;  // -A and P, [kC, kC], 0 above the diagonal
  float* const pair_decay;   // decays after s up to t, 0 above the diagonal; unless per_key
  float* const beta;

 private:
  template <class T>
  void LoadDecay(const RecurrenceArgs<T>& args, int64_t first) const {
    const RecurTag d;
    const T* const given = args.decay + first * args.decay_stride;
    if (!per_key) {
      for (int64_t t = 0; t < n; ++t) {
        decay[t] = args.decay == nullptr ? 1 : std::exp(GetElement(given + t * args.decay_stride));
        from_start[t] = t == 0 ? decay[t] : from_start[t - 1] * decay[t];
      }
      for (int64_t t = n - 1; t >= 0; --t) {
        to_end[t] = t == n - 1 ? 1 : to_end[t + 1] * decay[t + 1];
      }
      return;
    }
    LoadRows(given, args.decay_stride, n, args.key_dim, decay, kp);
    for (int64_t e = 0; e < kp; e += RecurLanes()) {
      RecurVec factor = hn::Set(d, 1.0f);
      for (int64_t t = 0; t < n; ++t) {
        const RecurVec own = FastExp(d, hn::Load(d, decay + t * kp + e));
        factor = hn::Mul(factor, own);
        hn::Store(own, d, decay + t * kp + e);
        hn::Store(factor, d, from_start + t * kp + e);
      }
      factor = hn::Set(d, 1.0f);
      for (int64_t t = n - 1; t >= 0; --t) {
        hn::Store(factor, d, to_end + t * kp + e);
        factor = hn::Mul(factor, hn::Load(d, decay + t * kp + e));
      }
    }
  }

  // Computes P and A for one decay per token.
  void PairByToken() const {
    const RecurTag d;
    products.RightTransposed(n, n, kp, q, kp, k, kp, p, kC);
    if (delta) products.RightTransposed(n, n, kp, k, kp, k, kp, a, kC);
    std::fill_n(pair_decay, kC, 0.0f);
    for (int64_t t = 0; t < n; ++t) {
      const RecurVec row = hn::Set(d, static_cast<float>(t)), own = hn::Set(d, decay[t]);
      for (int64_t s = 0; s < n; s += RecurLanes()) {
        const RecurVec token = hn::Iota(d, static_cast<float>(s));
        const int64_t e = t * kC + s;
        const RecurVec before = hn::Load(d, pair_decay + (t == 0 ? e : e - kC));
        const RecurVec factor =
            hn::IfThenElse(hn::Eq(token, row), hn::Set(d, 1.0f), hn::Mul(before, own));
        hn::Store(factor, d, pair_decay + e);
        const auto seen = hn::Le(token, row);
        hn::Store(hn::IfThenElseZero(seen, hn::Mul(factor, hn::Load(d, p + e))), d, p + e);
        if (!delta) continue;
        const RecurVec minus = hn::Neg(hn::Mul(factor, hn::Load(d, a + e)));
        hn::Store(hn::IfThenElseZero(hn::Lt(token, row), minus), d, a + e);
      }
    }
  }

  // Computes P and A for a decay per channel: blocks below the diagonal by products around an
  // anchor, those on the diagonal pair by pair.
  void PairByChannel() const {
    const RecurTag d;
    for (int64_t first = 0; first < n; first += kTriangle) {
      const int64_t end = std::min(n, first + kTriangle), rows = end - first;
      if (first > 0) {
        Anchor(first, end);
        products.RightTransposed(rows, first, kp, anchored_rows, kp, anchored_keys, kp,
                                 p + first * kC, kC);
        if (delta) {
          products.RightTransposed(rows, first, kp, anchored_rows + kTriangle * kp, kp,
                                   anchored_keys, kp, a + first * kC, kC);
          for (int64_t t = first; t < end; ++t) {
            for (int64_t s = 0; s < first; ++s) a[t * kC + s] = -a[t * kC + s];
          }
        }
      }
      for (int64_t t = first; t < end; ++t) {
        std::fill(p + t * kC + t + 1, p + t * kC + kC, 0.0f);
        std::fill(a + t * kC + t, a + t * kC + kC, 0.0f);
        std::fill_n(running, kp, 1.0f);
        for (int64_t s = t; s >= first; --s) {
          RecurVec of_q = hn::Zero(d), of_k = hn::Zero(d);
          for (int64_t e = 0; e < kp; e += RecurLanes()) {
            const RecurVec factor = hn::Load(d, running + e);
            const RecurVec key = hn::Mul(factor, hn::Load(d, k + s * kp + e));
            of_q = hn::MulAdd(hn::Load(d, q + t * kp + e), key, of_q);
            of_k = hn::MulAdd(hn::Load(d, k + t * kp + e), key, of_k);
            hn::Store(hn::Mul(factor, hn::Load(d, decay + s * kp + e)), d, running + e);
          }
          p[t * kC + s] = SumLanes(of_q);
          if (s < t) a[t * kC + s] = -SumLanes(of_k);
        }
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
