// SPDX-License-Identifier: Apache-2.0
// Gradient of linear attention, chunk by chunk from the last to the first. A chunk's A, P, U and W
// are computed again from the state at its start. With dX the gradient of X, the rows of the
// products of a chunk give
//
//   dU = P' dO + (K * e^(g_end - g)) dH,   (I + diag(b) A)' Z = dU,   db_t = w_t . z_t,
//   dV = dY = diag(b) Z,   dP = dO U' (s <= t),   dA = -dY U' (s < t),
//   dH <- diag(e^g_end) dH + (Q * e^g)' dO - (K * e^g)' dY.
//
// A query has the factor e^g_t, and a key e^g_t as a row of A and of K * e^g, and e^-g_s as a
// column of A and P and in the update of H. So dg = q dq + k (dk of rows - dk of columns), to which
// the last token adds what depends on g_end; the gradient of a log decay is the sum of dg from its
// token on.
#include "runtime/kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/linear_attention/backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/linear_attention/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

inline void StoreElement(float x, float* to) { *to = x; }
inline void StoreElement(float x, uint16_t* to) { *to = Bf16FromFloat(x); }

class ChunkGradient : public Chunk {
 public:
  template <class T>
  ChunkGradient(const RecurrenceGradArgs<T>& args, RecurrenceScratch* scratch)
      : Chunk(args.head, scratch),
        w(scratch->Take(kC * vp)),
        z(scratch->Take(kC * vp)),
        dout(scratch->Take(kC * vp)),
        dq(scratch->Take(kC * kp)),
        dk_row(scratch->Take(kC * kp)),
        dk_column(scratch->Take(kC * kp)),
        dq_sum(scratch->Take(kC * kp)),
        dk_sum(scratch->Take(kC * kp)),
        product(scratch->Take(kC * kp)),
        dp(scratch->Take(kC * kC)),
        da(scratch->Take(kC * kC)),
        dbeta(scratch->Take(kC)),
        of_end(scratch->Take(kp)),
        dh(scratch->Take(args.group * kp * vp)) {}

  // Turns dU in z into dY, and sets dbeta.
  void SolveTransposed() const {
    const RecurTag d;
    for (int64_t first = (n - 1) / kTriangle * kTriangle; delta && first >= 0; first -= kTriangle) {
      const int64_t end = std::min(n, first + kTriangle);
      if (end < n) {
        products.LeftTransposed(end - first, vp, n - end, a + end * kC + first, kC, z + end * vp,
                                vp, true, z + first * vp, vp);
      }
      for (int64_t s = end - 1; s >= first; --s) {
        RecurVec dot = hn::Zero(d);
        for (int64_t e = 0; e < vp; e += RecurLanes()) {
          RecurVec sum = hn::Load(d, z + s * vp + e);
          for (int64_t t = s + 1; t < end; ++t) {
            sum = hn::MulAdd(hn::Set(d, a[t * kC + s]), hn::Load(d, z + t * vp + e), sum);
          }
          dot = hn::MulAdd(sum, hn::Load(d, w + s * vp + e), dot);
          hn::Store(hn::Mul(sum, hn::Set(d, beta[s])), d, z + s * vp + e);
        }
        dbeta[s] = SumLanes(dot);
      }
    }
  }

  // Computes the gradients of one head from its dH at the end of the chunk, and replaces that by dH
  // at its start.
  void Run(float* of_state) const {
    products.LeftTransposed(n, vp, n, p, kC, dout, vp, false, z, vp);
    products.Plain(n, vp, kp, k_to_end, kp, of_state, vp, true, z, vp);
    SolveTransposed();

    products.RightTransposed(n, kp, vp, u, vp, of_state, vp, product, kp);
    MultiplyRows(to_end, 1, product, dk_column);
    SumOfEnd(of_state);
    products.RightTransposed(n, kp, vp, dout, vp, h, vp, product, kp);
    MultiplyRows(from_start, 1, product, dq);
    std::fill_n(dk_row, n * kp, 0.0f);
    if (delta) {
      products.RightTransposed(n, kp, vp, z, vp, h, vp, product, kp);
      MultiplyRows(from_start, -1, product, dk_row);
    }
    products.RightTransposed(n, n, vp, dout, vp, u, vp, dp, kC);
    if (delta) products.RightTransposed(n, n, vp, z, vp, u, vp, da, kC);
    per_key ? AddPairsByChannel() : AddPairsByToken();

    DecayState(of_state);
    products.LeftTransposed(kp, vp, n, q_decayed, kp, dout, vp, true, of_state, vp);
    if (delta) products.LeftTransposed(kp, vp, n, k_decayed, kp, z, vp, true, of_state, vp);
  }

  // Adds the gradients of q and k to their sums over heads, and turns dk_row into the gradients of
  // the log decays: of each channel, or in its first element their sum.
  void Finish() const {
    const RecurTag d;
    for (int64_t t = n - 1; t >= 0; --t) {
      RecurVec all = hn::Zero(d);
      for (int64_t e = t * kp, c = 0; c < kp; e += RecurLanes(), c += RecurLanes()) {
        const RecurVec of_q = hn::Load(d, dq + e), of_row = hn::Load(d, dk_row + e);
        const RecurVec of_column = hn::Load(d, dk_column + e), key = hn::Load(d, k + e);
        hn::Store(hn::Add(hn::Load(d, dq_sum + e), of_q), d, dq_sum + e);
        hn::Store(hn::Add(hn::Load(d, dk_sum + e), hn::Add(of_row, of_column)), d, dk_sum + e);
        // of_end becomes the sum of dg from this token on.
        RecurVec sum = hn::MulAdd(hn::Load(d, q + e), of_q, hn::Load(d, of_end + c));
        sum = hn::MulAdd(key, hn::Sub(of_row, of_column), sum);
        hn::Store(sum, d, of_end + c);
        if (per_key) hn::Store(sum, d, dk_row + e);
        all = hn::Add(all, sum);
      }
      if (!per_key) dk_row[t * kp] = SumLanes(all);
    }
  }

  float *const w, *const z, *const dout;             // W, dU and then dY, dO: [kC, vp]
  float *const dq, *const dk_row, *const dk_column;  // of one head, [kC, kp]
  float *const dq_sum, *const dk_sum;                // of all heads of the group
  float* const product;
  float *const dp, *const da;
  float* const dbeta;
  float* const of_end;  // dg of the last token due to g_end, [kp]
  float* const dh;      // [group, kp, vp]

 private:
  // Sets of_end. dk_column has the part of the update of H only.
  void SumOfEnd(const float* of_state) const {
    const RecurTag d;
    for (int64_t c = 0; c < kp; ++c) {
      RecurVec dot = hn::Zero(d);
      for (int64_t e = 0; e < vp; e += RecurLanes()) {
        dot = hn::MulAdd(hn::Load(d, h + c * vp + e), hn::Load(d, of_state + c * vp + e), dot);
      }
      of_end[c] = WholeDecay(c) * SumLanes(dot);
    }
    for (int64_t c = 0; c < kp; c += RecurLanes()) {
      RecurVec sum = hn::Load(d, of_end + c);
      for (int64_t s = 0; s < n; ++s) {
        sum = hn::MulAdd(hn::Load(d, k + s * kp + c), hn::Load(d, dk_column + s * kp + c), sum);
      }
      hn::Store(sum, d, of_end + c);
    }
  }

  void AddPairsByToken() const {
    const RecurTag d;
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t s = 0; s < n; s += RecurLanes()) {
        const int64_t e = t * kC + s;
        const RecurVec factor = hn::Load(d, pair_decay + e);
        hn::Store(hn::Mul(factor, hn::Load(d, dp + e)), d, dp + e);
        if (delta) hn::Store(hn::Neg(hn::Mul(factor, hn::Load(d, da + e))), d, da + e);
      }
      da[t * kC + t] = 0;
    }
    products.Plain(n, kp, n, dp, kC, k, kp, true, dq, kp);
    products.LeftTransposed(n, kp, n, dp, kC, q, kp, true, dk_column, kp);
    if (!delta) return;
    products.Plain(n, kp, n, da, kC, k, kp, true, dk_row, kp);
    products.LeftTransposed(n, kp, n, da, kC, k, kp, true, dk_column, kp);
  }

  void AddPairsByChannel() const {
    for (int64_t t = 0; delta && t < n; ++t) {
      for (int64_t s = 0; s < t; ++s) da[t * kC + s] = -da[t * kC + s];
    }
    for (int64_t first = 0; first < n; first += kTriangle) {
      const int64_t end = std::min(n, first + kTriangle);
      if (first > 0) AddAnchored(first, end);
      for (int64_t t = first; t < end; ++t) {
        std::fill_n(running, kp, 1.0f);
        for (int64_t s = t; s >= first; --s) AddPair(t, s);
      }
    }
  }

  // Adds the products of rows [first, end) with the columns before `first`.
  void AddAnchored(int64_t first, int64_t end) const {
    const RecurTag d;
    const int64_t rows = end - first;
    Anchor(first, end);
    const auto add_rows = [&](const float* pairs, float* to) HWY_ATTR {
      products.Plain(rows, kp, first, pairs + first * kC, kC, anchored_keys, kp, false, product,
                     kp);
      for (int64_t e = 0; e < kp; e += RecurLanes()) {
        RecurVec factor = hn::Set(d, 1.0f);
        for (int64_t t = first; t < end; ++t) {
          factor = hn::Mul(factor, hn::Load(d, decay + t * kp + e));
          const RecurVec x = hn::Load(d, product + (t - first) * kp + e);
          hn::Store(hn::MulAdd(factor, x, hn::Load(d, to + t * kp + e)), d, to + t * kp + e);
        }
      }
    };
    add_rows(dp, dq);
    if (delta) add_rows(da, dk_row);
    products.LeftTransposed(first, kp, rows, dp + first * kC, kC, anchored_rows, kp, false, product,
                            kp);
    if (delta) {
      products.LeftTransposed(first, kp, rows, da + first * kC, kC, anchored_rows + kTriangle * kp,
                              kp, true, product, kp);
    }
    for (int64_t e = 0; e < kp; e += RecurLanes()) {
      RecurVec factor = hn::Set(d, 1.0f);
      for (int64_t s = first - 1; s >= 0; --s) {
        float* const to = dk_column + s * kp + e;
        hn::Store(hn::MulAdd(factor, hn::Load(d, product + s * kp + e), hn::Load(d, to)), d, to);
        factor = hn::Mul(factor, hn::Load(d, decay + s * kp + e));
      }
    }
  }

  // Adds the product of row t and column s. `running` has the decays after s up to t, and gets that
  // of s.
  void AddPair(int64_t t, int64_t s) const {
    const RecurTag d;
    const RecurVec of_p = hn::Set(d, dp[t * kC + s]);
    const RecurVec of_a = hn::Set(d, delta && s < t ? da[t * kC + s] : 0.0f);
    for (int64_t e = 0; e < kp; e += RecurLanes()) {
      const RecurVec factor = hn::Load(d, running + e);
      hn::Store(hn::Mul(factor, hn::Load(d, decay + s * kp + e)), d, running + e);
      const RecurVec key = hn::Mul(factor, hn::Load(d, k + s * kp + e));
      float *const to_q = dq + t * kp + e, *const to_row = dk_row + t * kp + e;
      float* const to_column = dk_column + s * kp + e;
      hn::Store(hn::MulAdd(of_p, key, hn::Load(d, to_q)), d, to_q);
      hn::Store(hn::MulAdd(of_a, key, hn::Load(d, to_row)), d, to_row);
      const RecurVec rows =
          hn::MulAdd(of_p, hn::Load(d, q + t * kp + e), hn::Mul(of_a, hn::Load(d, k + t * kp + e)));
      hn::Store(hn::MulAdd(factor, rows, hn::Load(d, to_column)), d, to_column);
    }
  }
};

// Returns the operands of head i of the group.
template <class T>
RecurrenceArgs<T> SelectHead(const RecurrenceGradArgs<T>& args, int64_t i) {
  RecurrenceArgs<T> head = args.head;
  head.v += i * head.value_dim;
  if (head.decay != nullptr) head.decay += i * (head.decay_per_key ? head.key_dim : 1);
  if (head.beta != nullptr) head.beta += i;
  head.starts += i * ChunkCount(head.tokens) * head.key_dim * head.value_dim;
  return head;
}

template <class T>
void RecurGrad(const RecurrenceGradArgs<T>& args, float* memory) {
  RecurrenceScratch scratch(memory);
  ChunkGradient chunk(args, &scratch);
  const RecurrenceArgs<T>& shared = args.head;
  const int64_t kp = chunk.kp, vp = chunk.vp, keys = shared.key_dim, values = shared.value_dim;
  std::fill_n(chunk.dh, args.group * kp * vp, 0.0f);
  std::fill_n(chunk.h, kp * vp, 0.0f);
  for (int64_t c = ChunkCount(shared.tokens) - 1; c >= 0; --c) {
    const int64_t first = c * Chunk::kC;
    chunk.LoadKeys(shared, first);
    std::fill_n(chunk.dq_sum, chunk.n * kp, 0.0f);
    std::fill_n(chunk.dk_sum, chunk.n * kp, 0.0f);
    for (int64_t i = 0; i < args.group; ++i) {
      const RecurrenceArgs<T> head = SelectHead(args, i);
      LoadRows(head.starts + c * keys * values, values, keys, values, chunk.h, vp);
      chunk.Load(head, first);
      chunk.Solve(chunk.w);
      const int64_t of_v = first * head.v_stride + i * values;
      LoadRows(args.dcontext + of_v, head.v_stride, chunk.n, values, chunk.dout, vp);
      chunk.Run(chunk.dh + i * kp * vp);
      chunk.Finish();
      StoreRows(chunk.z, vp, chunk.n, values, args.dv + of_v, head.v_stride);
      if (args.ddecay != nullptr) {
        const int64_t width = head.decay_per_key ? keys : 1;
        StoreRows(chunk.dk_row, kp, chunk.n, width,
                  args.ddecay + first * head.decay_stride + i * width, head.decay_stride);
      }
      for (int64_t t = 0; args.dbeta != nullptr && t < chunk.n; ++t) {
        StoreElement(chunk.dbeta[t], args.dbeta + (first + t) * head.beta_stride + i);
      }
    }
    const int64_t of_k = first * shared.qk_stride;
    StoreRows(chunk.dq_sum, kp, chunk.n, keys, args.dq + of_k, shared.qk_stride);
    StoreRows(chunk.dk_sum, kp, chunk.n, keys, args.dk + of_k, shared.qk_stride);
  }
}

RecurGradFn<float> SelectRecurGradF32() { return &RecurGrad<float>; }
RecurGradFn<uint16_t> SelectRecurGradBf16() { return &RecurGrad<uint16_t>; }

int64_t MeasureRecurGrad(int64_t key_dim, int64_t value_dim, int64_t group) {
  RecurrenceGradArgs<float> args = {};
  args.head.key_dim = key_dim;
  args.head.value_dim = value_dim;
  args.group = group;
  RecurrenceScratch scratch(nullptr);
  const ChunkGradient chunk(args, &scratch);
  static_cast<void>(chunk);
  return scratch.used();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectRecurGradF32);
HWY_EXPORT(SelectRecurGradBf16);
HWY_EXPORT(MeasureRecurGrad);

template <>
RecurGradFn<float> ChooseRecurGrad<float>() {
  return HWY_DYNAMIC_DISPATCH(SelectRecurGradF32)();
}
template <>
RecurGradFn<uint16_t> ChooseRecurGrad<uint16_t>() {
  return HWY_DYNAMIC_DISPATCH(SelectRecurGradBf16)();
}
int64_t RecurGradScratch(int64_t key_dim, int64_t value_dim, int64_t group) {
  return HWY_DYNAMIC_DISPATCH(MeasureRecurGrad)(key_dim, value_dim, group);
}

}  // namespace plumb
#endif  // HWY_ONCE
