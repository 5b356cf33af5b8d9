// The backward core of attention: Dao et al., "FlashAttention" (2022), algorithm 4, for one head of
// keys and values and the query heads that share it. With p_ij = exp(s_ij - lse_i):
//   dv_j = sum_i p_ij dcontext_i
//   ds_ij = p_ij (dcontext_i . v_j - D_i),  D_i = dcontext_i . context_i
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/attention/bf16.h"
#include "runtime/kernels/attention/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/attention/tiles-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// Rows are `width` floats apart, those of scores kKeyBlock.
struct Blocks {
  int64_t width;
  float scale;  // of the scores, over log 2
  // Of up to kQueryRows queries of one head:
  float* q;
  float* dcontext;
  float* dq;    // without scale
  float* lse;   // in units of log 2
  float* dots;  // D
  // Of a block of keys:
  float* k;
  float* k_columns;  // [head_dim][kKeyBlock]
  float* v_columns;  // like k_columns
  float* dk;         // of these queries, without scale
  float* dv;
  // Of kGradRows queries and a block of keys:
  float* p;
  float* ds;
};

// Sums over all queries, for tensors that are too coarse to be summed in. Rows are width apart.
struct Totals {
  float* dk;
  float* dv;
};

// Lanes of a . b.
template <class T>
HWY_INLINE Vf Dot(const T* a, const T* b, int64_t last, const FloatTail<Df>& tail) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vf sum = hn::Mul(tail.Load(d, a + last), tail.Load(d, b + last));
  for (int64_t e = 0; e < last; e += lanes) {
    sum = hn::MulAdd(LoadFloats(d, a + e), LoadFloats(d, b + e), sum);
  }
  return sum;
}

// p and ds of a tile of queries and the keys at hand, of which row r (of the tile) sees `visible` +
// r, at most n_keys. Beyond those the tile's `vectors` vectors are 0. kWhole: all are seen.
template <bool kWhole>
HWY_INLINE void DifferentiateTile(int64_t r0, int64_t c, int64_t visible, int64_t n_keys,
                                  int64_t vectors, const Blocks& x, float* p, float* ds) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* lse = x.lse + r0;
  const float* dots = x.dots + r0;
  const Vf scale = hn::Set(d, x.scale);
  // Lanes beyond the diagonal hold anything, NaN too: select, do not multiply.
  const auto select = [&](int64_t r, int64_t v, Vf y) HWY_ATTR {
    if constexpr (kWhole) return y;
    const int64_t count = std::min(n_keys, visible + r) - v * lanes;
    const int64_t seen = std::max<int64_t>(0, std::min(lanes, count));
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(seen)), y);
  };
  MultiplyRows({x.q + r0 * x.width, x.width, 1}, x.k_columns, kKeyBlock, c, vectors, FromZero(),
               [&](int64_t r, int64_t v, Vf acc) HWY_ATTR {
                 const Vf e = Exp2(d, hn::MulSub(acc, scale, hn::Set(d, lse[r])));
                 hn::Store(select(r, v, e), d, p + r * kKeyBlock + v * lanes);
               });
  MultiplyRows({x.dcontext + r0 * x.width, x.width, 1}, x.v_columns, kKeyBlock, c, vectors,
               FromZero(), [&](int64_t r, int64_t v, Vf acc) HWY_ATTR {
                 const int64_t at = r * kKeyBlock + v * lanes;
                 const Vf dp = hn::Sub(acc, hn::Set(d, dots[r]));
                 hn::Store(select(r, v, hn::Mul(hn::Load(d, p + at), dp)), d, ds + at);
               });
}

// Adds what queries [i0, +rows) of the block make of the keys at hand to dq, dk and dv. Key j is
// seen by query i when j <= i + diagonal. kOnly: there are no other queries nor keys, and the sums
// go to where args says.
template <bool kOnly, class T>
HWY_INLINE void DifferentiateBlock(const AttendGradArgs<T>& args, int64_t i0, int64_t rows,
                                   int64_t n_keys, int64_t diagonal, const Blocks& x,
                                   RowsAhead* ahead) {
  const int64_t c = args.head_dim;
  const int64_t channels = VectorCount(c);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  const auto seen_by = [&](int64_t i) { return std::min(n_keys, i + diagonal + 1); };
  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    ahead->Step();
    const int64_t i = i0 + r0;
    const int64_t seen = seen_by(i + kRowTile - 1);
    if (seen <= 0) continue;
    const int64_t vectors = VectorCount(seen);
    float* p = x.p + r0 * kKeyBlock;
    float* ds = x.ds + r0 * kKeyBlock;
    if (i + diagonal + 1 >= vectors * lanes && n_keys >= vectors * lanes) {
      DifferentiateTile<true>(i, c, i + diagonal + 1, n_keys, vectors, x, p, ds);
    } else {
      DifferentiateTile<false>(i, c, i + diagonal + 1, n_keys, vectors, x, p, ds);
    }
    ahead->Step();
    if constexpr (kOnly) {
      const ToRows<T> to_dq(args.dq + i * args.q_stride, args.q_stride, rows - r0, c, &args.scale,
                            0);
      MultiplyRows({ds, kKeyBlock, 1}, x.k, x.width, seen, channels, FromZero(), to_dq);
    } else {
      float* dq = x.dq + i * x.width;
      MultiplyRows({ds, kKeyBlock, 1}, x.k, x.width, seen, channels, FromMemory{dq, x.width},
                   ToMemory{dq, x.width});
    }
  }

  const int64_t seen = seen_by(i0 + rows - 1);
  for (int64_t g = 0; g < seen; g += kRowTile) {
    // The first query that sees key g, and so all of the tile's columns were set by its tile.
    const int64_t from = std::max<int64_t>(0, g - diagonal - i0);
    ahead->Step();
    const LeftOperand p = {x.p + from * kKeyBlock + g, 1, kKeyBlock};
    const LeftOperand ds = {x.ds + from * kKeyBlock + g, 1, kKeyBlock};
    const float* dcontext = x.dcontext + (i0 + from) * x.width;
    const float* q = x.q + (i0 + from) * x.width;
    if constexpr (kOnly) {
      const float one = 1.0f;
      const int64_t stride = args.kv_stride, at = g * stride;
      const ToRows<T> to_dv(args.dv + at, stride, n_keys - g, c, &one, 0);
      MultiplyRows(p, dcontext, x.width, rows - from, channels, FromZero(), to_dv);
      ahead->Step();
      const ToRows<T> to_dk(args.dk + at, stride, n_keys - g, c, &args.scale, 0);
      MultiplyRows(ds, q, x.width, rows - from, channels, FromZero(), to_dk);
    } else {
      float *dv = x.dv + g * x.width, *dk = x.dk + g * x.width;
      MultiplyRows(p, dcontext, x.width, rows - from, channels, FromMemory{dv, x.width},
                   ToMemory{dv, x.width});
      ahead->Step();
      MultiplyRows(ds, q, x.width, rows - from, channels, FromMemory{dk, x.width},
                   ToMemory{dk, x.width});
    }
  }
}

// to += factor * rows, or to = it, whether `to` is an output or a total.
template <class T>
HWY_INLINE void Unpack(const float* rows, int64_t count, int64_t width, float factor, int64_t c,
                       bool add, T* to, int64_t stride) {
  const Df d;
  const int64_t last = (VectorCount(c) - 1) * static_cast<int64_t>(hn::Lanes(d));
  const FloatTail<Df> tail(d, c - last);
  const Vf scale = hn::Set(d, factor);
  for (int64_t j = 0; j < count; ++j) {
    if (add) {
      UnpackRow<true>(rows + j * width, scale, to + j * stride, last, tail);
    } else {
      UnpackRow<false>(rows + j * width, scale, to + j * stride, last, tail);
    }
  }
}

// Queries [s0, +rows) of one head against all keys that they see.
template <class T>
void DifferentiateQueries(const AttendGradArgs<T>& args, int64_t head, int64_t s0, int64_t rows,
                          const Blocks& x, const Totals& totals) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim;
  const int64_t start = s0 * args.q_stride + head * c;
  const int64_t last = (VectorCount(c) - 1) * lanes;
  const FloatTail<Df> tail(d, c - last);
  PackTiles(args.q + start, args.q_stride, rows, c, x.q, x.width);
  PackTiles(args.dcontext + start, args.q_stride, rows, c, x.dcontext, x.width);
  const int64_t padded = RoundUp(rows, kRowTile);
  // Then every sum is made at once.
  const bool only = args.group == 1 && args.tokens <= kGradRows;
  if (!only) ZeroRows(x.dq, 0, padded, x.width);
  std::copy_n(args.lse + head * args.tokens + s0, rows, x.lse);
  std::fill(x.lse + rows, x.lse + padded, 0.0f);
  for (int64_t r = 0; r < padded; r += lanes) {
    hn::Store(hn::Mul(hn::Load(d, x.lse + r), hn::Set(d, kLog2E)), d, x.lse + r);
  }
  // Where there are fewer than four, the last row repeats.
  const auto dot = [&](int64_t r) HWY_ATTR {
    const int64_t at = start + std::min(r, rows - 1) * args.q_stride;
    return Dot(args.dcontext + at, args.context + at, last, tail);
  };
  for (int64_t r = 0; r < padded; r += 4) {
    FoldLanes(d, dot(r), dot(r + 1), dot(r + 2), dot(r + 3), Sum(), x.dots + r);
  }

  for (int64_t j0 = 0; j0 < s0 + rows; j0 += kKeyBlock) {
    const int64_t n_keys = std::min(kKeyBlock, s0 + rows - j0);
    const T* k = args.k + j0 * args.kv_stride;
    const T* v = args.v + j0 * args.kv_stride;
    PackRows(k, args.kv_stride, n_keys, c, x.k, x.width);
    PackTransposed(k, args.kv_stride, n_keys, c, x.k_columns);
    PackTransposed(v, args.kv_stride, n_keys, c, x.v_columns);
    if (only) {
      RowsAhead ahead = After(args, head, s0, j0, 5 * rows / kRowTile);
      DifferentiateBlock<true>(args, 0, rows, n_keys, 0, x, &ahead);
      return;
    }
    const int64_t key_tiles = RoundUp(n_keys, kRowTile);
    ZeroRows(x.dk, 0, key_tiles, x.width);
    ZeroRows(x.dv, 0, key_tiles, x.width);

    const int64_t from = std::max<int64_t>(0, j0 - s0);
    RowsAhead ahead = After(args, head, s0, j0, 5 * (rows - from) / kRowTile);
    for (int64_t i0 = from; i0 < rows; i0 += kGradRows) {
      DifferentiateBlock<false>(args, i0, std::min(kGradRows, rows - i0), n_keys, s0 - j0, x,
                                &ahead);
    }

    // These queries are the first to see the keys of their own blocks.
    const bool add = head > 0 || j0 < s0;
    const int64_t at = j0 * args.kv_stride, total_at = j0 * x.width;
    if (totals.dk == nullptr) {
      Unpack(x.dk, n_keys, x.width, args.scale, c, add, args.dk + at, args.kv_stride);
      Unpack(x.dv, n_keys, x.width, 1.0f, c, add, args.dv + at, args.kv_stride);
    } else {
      Unpack(x.dk, n_keys, x.width, args.scale, c, add, totals.dk + total_at, x.width);
      Unpack(x.dv, n_keys, x.width, 1.0f, c, add, totals.dv + total_at, x.width);
    }
  }
  Unpack(x.dq, rows, x.width, args.scale, c, false, args.dq + start, args.q_stride);
}

template <class T>
void AttendGrad(const AttendGradArgs<T>& args, float* scratch) {
  const int64_t packed = PackedRows(args.tokens);
  Blocks x;
  x.width = PackedWidth(args.head_dim);
  x.scale = args.scale * kLog2E;
  ScratchPieces pieces(scratch);
  x.q = pieces.Take(packed * x.width);
  x.dcontext = pieces.Take(packed * x.width);
  x.dq = pieces.Take(packed * x.width);
  x.lse = pieces.Take(PackedWidth(packed));
  x.dots = pieces.Take(PackedWidth(packed));
  for (float** block : {&x.k, &x.k_columns, &x.v_columns, &x.dk, &x.dv}) {
    *block = pieces.Take(kKeyBlock * x.width);
  }
  x.p = pieces.Take(kGradRows * kKeyBlock);
  x.ds = pieces.Take(kGradRows * kKeyBlock);
  Totals totals = {nullptr, nullptr};
  const bool only = args.group == 1 && args.tokens <= kGradRows;
  if (!std::is_same<T, float>::value && !only) {
    totals.dk = pieces.Take(args.tokens * x.width);
    totals.dv = pieces.Take(args.tokens * x.width);
  }
  pieces.CheckWithin(AttendGradScratchBytes(args.tokens, args.head_dim, sizeof(T)));

  for (int64_t head = 0; head < args.group; ++head) {
    for (int64_t s0 = 0; s0 < args.tokens; s0 += kQueryRows) {
      DifferentiateQueries(args, head, s0, std::min(kQueryRows, args.tokens - s0), x, totals);
    }
  }
  if (totals.dk != nullptr) {
    const int64_t n = args.tokens, c = args.head_dim;
    Unpack(totals.dk, n, x.width, 1.0f, c, false, args.dk, args.kv_stride);
    Unpack(totals.dv, n, x.width, 1.0f, c, false, args.dv, args.kv_stride);
  }
}

AttendGradFn<float> SelectAttendGradF32() { return AttendGrad<float>; }
AttendGradFn<uint16_t> SelectAttendGradBf16() {
  if (const AttendGradFn<uint16_t> fast = FindBf16AttendGrad()) return fast;
  return AttendGrad<uint16_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAttendGradF32);
HWY_EXPORT(SelectAttendGradBf16);

template <>
AttendGradFn<float> ChooseAttendGrad<float>() {
  return HWY_DYNAMIC_DISPATCH(SelectAttendGradF32)();
}
template <>
AttendGradFn<uint16_t> ChooseAttendGrad<uint16_t>() {
  return HWY_DYNAMIC_DISPATCH(SelectAttendGradBf16)();
}

int64_t AttendGradScratchBytes(int64_t tokens, int64_t head_dim, int64_t element_bytes) {
  const int64_t packed = PackedRows(tokens), width = PackedWidth(head_dim);
  const int64_t totals = element_bytes < 4 ? 2 * tokens * width : 0;
  const int64_t floats = packed * 3 * width + 2 * PackedWidth(packed) + 5 * kKeyBlock * width +
                         2 * kGradRows * kKeyBlock + totals;
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
