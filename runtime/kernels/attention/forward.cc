// SPDX-License-Identifier: Apache-2.0
// Forward kernel of attention. Softmax over KV blocks with a running maximum and sum: Milakov &
// Gimelshein, "Online normalizer calculation for softmax" (2018); the blocking follows Dao et al.,
// "FlashAttention" (2022), algorithm 1. E is the operand format of the products; kPlain is true for
// a plain softmax.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/attention/tiles-inl.h"
#include "runtime/kernels/simd/exp-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// State of a block of queries. Maxima are in units of log 2.
template <class E>
struct QueryBlock {
  int64_t width;
  const typename E::Packed* q;
  int64_t q_stride;
  float scale;         // scale of the scores, over log 2; with a cap, of tanh's argument
  float cap;           // over log 2; 0: none
  float slope;         // over log 2; 0: none
  float sink;          // over log 2
  float* key_bias;     // [kKeyBlock], of the current block of keys; null: none
  float* own_bias;     // [rows], of the queries' own keys
  float* sum;          // [rows][width], values weighted with exponentials
  float* denominator;  // [rows][kDenominatorWidth], sum of the exponentials
  float* inverse;      // [rows], inverse of the whole denominator
  float* maximum;      // [rows], subtracted before exponentials are taken
  float* scores;       // [kScoreRows][kKeyBlock], then the exponentials as packed elements
};

// A block of `count` keys and values. Row r of the queries attends to keys up to r + diagonal, and
// with a window to those from FirstKey(r) on.
template <class E>
struct KvBlock {
  const typename E::Packed* k;  // transposed: [head_dim / kTerms][kKeyBlock]
  const typename E::Packed* v;  // [kKeyBlock / kTerms][width]
  int64_t count;
  int64_t diagonal;
  int64_t window;  // ignored if the softmax is plain
  bool first;      // true for the first block of all keys

  // Returns the number of keys that the last row of the tile at r0 attends to.
  int64_t CausalExtent(int64_t r0) const { return std::min(count, r0 + kRowTile + diagonal); }
  int64_t FirstKey(int64_t r) const { return r + diagonal - window + 1; }

  // Returns true if row r attends to some of these keys and to none before them.
  template <bool kPlain>
  bool BeginsRow(int64_t r) const {
    if (kPlain) return first;
    return FirstKey(r) < count && (first || FirstKey(r) >= 0);
  }
  template <bool kPlain>
  bool BeginsSomeRow(int64_t r0) const {
    return BeginsRow<kPlain>(r0) || (!kPlain && BeginsRow<kPlain>(r0 + kRowTile - 1));
  }
};

// Raises the maxima of rows whose scores exceed them by more than kRescaleThreshold, and sets those
// of rows at their first keys; rescales the rows' sums. Sets `raised` to the increases, which the
// caller subtracts from the scores.
template <bool kPlain, class E>
HWY_INLINE void Rescale(int64_t r0, const float* scores, int64_t vectors, const KvBlock<E>& kv,
                        const QueryBlock<E>& x, float* raised) {
  const Df d;
  const int64_t lanes = LaneCount();
  static_assert(kRowTile % 4 == 0, "FoldLanes takes four rows");
  for (int64_t r = 0; r < kRowTile; r += 4) {
    const float* row = scores + r * kKeyBlock;
    Vf t0 = hn::Load(d, row), t1 = hn::Load(d, row + kKeyBlock);
    Vf t2 = hn::Load(d, row + 2 * kKeyBlock), t3 = hn::Load(d, row + 3 * kKeyBlock);
    for (int64_t e = lanes; e < vectors * lanes; e += lanes) {
      t0 = hn::Max(t0, hn::Load(d, row + e));
      t1 = hn::Max(t1, hn::Load(d, row + kKeyBlock + e));
      t2 = hn::Max(t2, hn::Load(d, row + 2 * kKeyBlock + e));
      t3 = hn::Max(t3, hn::Load(d, row + 3 * kKeyBlock + e));
    }
    FoldLanes(d, t0, t1, t2, t3, Maximum(), raised + r);
  }
  if (kPlain && kv.first) {
    std::copy_n(raised, kRowTile, x.maximum + r0);
    return;
  }
  for (int64_t r = 0; r < kRowTile; ++r) {
    if (!kPlain && kv.template BeginsRow<kPlain>(r0 + r)) {
      x.maximum[r0 + r] = raised[r] = std::max(raised[r], x.sink);
      continue;
    }
    // Per row, so that a row's bits do not depend on the other rows of its tile.
    if (!(raised[r] > kRescaleThreshold)) {
      raised[r] = 0;
      continue;
    }
    x.maximum[r0 + r] += raised[r];
    const Vf decay = FastExp2(d, hn::Set(d, -raised[r]));
    float* denominator = x.denominator + (r0 + r) * kDenominatorWidth;
    hn::Store(hn::Mul(hn::Load(d, denominator), decay), d, denominator);
    float* sum = x.sum + (r0 + r) * x.width;
    for (int64_t e = 0; e < x.width; e += lanes) {
      hn::Store(hn::Mul(hn::Load(d, sum + e), decay), d, sum + e);
    }
  }
}

// Computes the scores of the tile of queries at r0 minus the maxima. Returns true if one exceeds
// kRescaleThreshold. kWhole: all rows attend to all keys, which fill whole vectors.
template <bool kWhole, bool kPlain, class E>
HWY_INLINE bool ScoreTile(int64_t r0, int64_t head_dim, const KvBlock<E>& kv,
                          const QueryBlock<E>& x, float* scores) {
  const Df d;
  const int64_t lanes = LaneCount();
  // Number of vectors of keys that the first row, and so every row, attends to completely.
  const int64_t whole_vectors = std::min(kv.count, r0 + kv.diagonal + 1) / lanes;
  // Number of vectors with a key before the last row's window.
  const int64_t early_vectors =
      kPlain ? 0 : CeilDiv(std::max<int64_t>(0, kv.FirstKey(r0 + kRowTile - 1)), lanes);
  const float* maximum = x.maximum + r0;
  const Vf scale = hn::Set(d, x.scale);
  Vf highest = hn::Set(d, kMinusInfinity);
  MultiplyRows<E>(
      {x.q + r0 * x.q_stride, x.q_stride, 1}, kv.k, kKeyBlock, CeilDiv(head_dim, E::kTerms),
      VectorCount(kv.CausalExtent(r0)),
      FromZero(), [&](auto& tile, int64_t v0) HWY_ATTR __attribute__((always_inline)) {
        tile.ForEach([&](int64_t r, int64_t i, Vf acc) HWY_ATTR {
          const int64_t v = v0 + i;
          Vf score;
          if (kPlain || x.cap == 0) {
            score = hn::MulSub(acc, scale, hn::Set(d, maximum[r]));
          } else {
            Vf slope;
            Tanh::Both(d, hn::Mul(acc, scale), &score, &slope);
            score = hn::MulSub(score, hn::Set(d, x.cap), hn::Set(d, maximum[r]));
          }
          if (!kPlain && x.slope != 0) {
            score = hn::Add(score, DistanceBias(x.slope, r0 + r + kv.diagonal, v * lanes));
          }
          if (!kPlain && x.key_bias != nullptr) {
            score = AddKeyBias(score, x.key_bias + v * lanes, x.own_bias[r0 + r]);
          }
          if (!kPlain && !kWhole && (v >= whole_vectors || v < early_vectors)) {
            const int64_t row = r0 + r;
            const auto mask =
                KeysWithin(kv.FirstKey(row), std::min(kv.count, row + kv.diagonal + 1), v * lanes);
            score = hn::IfThenElse(mask, score, hn::Set(d, kMinusInfinity));
          }
          if (kPlain && !kWhole && v >= whole_vectors) {
            const int64_t count = std::min(kv.count, r0 + r + kv.diagonal + 1) - v * lanes;
            const auto mask =
                hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, std::min(lanes, count))));
            score = hn::IfThenElse(mask, score, hn::Set(d, kMinusInfinity));
          }
          highest = hn::Max(highest, score);
          hn::Store(score, d, scores + r * kKeyBlock + v * lanes);
        });
      });
  return !hn::AllFalse(d, hn::Gt(highest, hn::Set(d, kRescaleThreshold)));
}

// Replaces the tile's scores by their packed exponentials and adds these to the denominators. If
// the tile attends to no later keys (`last`), sums the denominators' lanes into `inverse`. A sink
// is part of a row's denominator from the beginning.
template <bool kPlain, class E>
HWY_INLINE void ExponentiateTile(int64_t r0, bool rescale, bool last, const KvBlock<E>& kv,
                                 const QueryBlock<E>& x, float* scores) {
  const Df d;
  const hn::Rebind<typename E::Packed, Df> packed;
  const int64_t lanes = LaneCount();
  const int64_t vectors = VectorCount(kv.CausalExtent(r0));
  HWY_ALIGN float raised[kRowTile] = {};
  if (rescale) Rescale<kPlain>(r0, scores, vectors, kv, x, raised);
  for (int64_t r = 0; r < kRowTile; ++r) {
    float* denominator = x.denominator + (r0 + r) * kDenominatorWidth;
    Vf sum = kv.template BeginsRow<kPlain>(r0) ? hn::Zero(d) : hn::Load(d, denominator);
    if (!kPlain && kv.template BeginsRow<kPlain>(r0 + r)) {
      const Vf sink = FastExp2(d, hn::Set(d, x.sink - x.maximum[r0 + r]));
      sum = hn::IfThenElseZero(hn::FirstN(d, 1), sink);
    }
    float* row = scores + r * kKeyBlock;
    const Vf less = hn::Set(d, raised[r]);
    for (int64_t v = 0; v < vectors; v += E::kTerms) {
      Vf p[E::kTerms];
      for (int64_t t = 0; t < E::kTerms; ++t) {
        p[t] = hn::Zero(d);
        if (t > 0 && v + t >= vectors) break;
        p[t] = FastExp2(d, hn::Sub(hn::Load(d, row + (v + t) * lanes), less));
        sum = hn::Add(sum, p[t]);
      }
      hn::Store(E::Along(p), packed, AsPacked<E>(row) + v / E::kTerms * lanes);
    }
    hn::Store(sum, d, denominator);
  }
  if (!last) return;
  for (int64_t r = 0; r < kRowTile; r += 4) {
    const float* lane = x.denominator + (r0 + r) * kDenominatorWidth;
    FoldLanes(d, hn::Load(d, lane), hn::Load(d, lane + kDenominatorWidth),
              hn::Load(d, lane + 2 * kDenominatorWidth), hn::Load(d, lane + 3 * kDenominatorWidth),
              Sum(), x.inverse + r0 + r);
  }
}

// Computes lse = log(2^maximum denominator) of rows [begin, end), and inverts the denominators.
template <class E>
HWY_INLINE void FinishDenominators(const AttendArgs<typename E::Tensor>& args, int64_t begin,
                                   int64_t end, const QueryBlock<E>& x) {
  const Df d;
  const int64_t lanes = LaneCount();
  for (int64_t r = begin; r < end; r += lanes) {
    const Vf denominator = hn::LoadU(d, x.inverse + r);
    const int64_t rows = std::min(lanes, args.queries - r);
    if (args.lse != nullptr && rows > 0) {
      const Vf lse =
          hn::MulAdd(hn::LoadU(d, x.maximum + r), hn::Set(d, kLn2), hn::Log(d, denominator));
      Tail<Df>(d, rows).Store(lse, d, args.lse + r);
    }
    hn::StoreU(hn::Div(hn::Set(d, 1.0f), denominator), d, x.inverse + r);
  }
}

// Adds the values weighted with the exponentials to the tile's sums, which start from 0 in the
// tile's `first` KV block. If the tile attends to no later keys (`last`), writes the context
// instead.
template <class E>
HWY_NOINLINE void SumTile(const AttendArgs<typename E::Tensor>& args, int64_t r0, bool first,
                          bool last, const KvBlock<E>& kv, const QueryBlock<E>& x, float* scores) {
  const LeftOperand<typename E::Packed> p = {AsPacked<E>(scores), kKeyBlock, 1};
  const int64_t depth = CeilDiv(kv.CausalExtent(r0), E::kTerms);
  const int64_t channels = VectorCount(args.head_dim);
  float* sum = x.sum + r0 * x.width;
  const FromMemory from_sum{sum, x.width};
  const ToMemory to_sum{sum, x.width};
  const ToRows<E> to_context(args.context + r0 * args.context_stride, args.context_stride,
                             args.queries - r0, args.head_dim, x.inverse + r0, 1);
  if (first && last) {
    MultiplyRows<E>(p, kv.v, x.width, depth, channels, FromZero(), to_context);
  } else if (first) {
    MultiplyRows<E>(p, kv.v, x.width, depth, channels, FromZero(), to_sum);
  } else if (last) {
    MultiplyRows<E>(p, kv.v, x.width, depth, channels, from_sum, to_context);
  } else {
    MultiplyRows<E>(p, kv.v, x.width, depth, channels, from_sum, to_sum);
  }
}

// Processes queries [begin, end), at most kScoreRows, against a KV block. It is the last block for
// the queries before `finished`.
template <bool kPlain, class E>
void AttendRows(const AttendArgs<typename E::Tensor>& args, int64_t begin, int64_t end,
                int64_t finished, const KvBlock<E>& kv, const QueryBlock<E>& x) {
  const auto scores_of = [&](int64_t r0) { return x.scores + (r0 - begin) * kKeyBlock; };
  // First row that attends to all of these keys.
  const int64_t whole = kv.count % LaneCount() == 0 ? kv.count - 1 - kv.diagonal : end;
  bool rescale[kScoreRows / kRowTile];
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    const bool is_whole = r0 >= whole && (kPlain || kv.FirstKey(r0 + kRowTile - 1) <= 0);
    rescale[(r0 - begin) / kRowTile] =
        (is_whole ? ScoreTile<true, kPlain>(r0, args.head_dim, kv, x, scores_of(r0))
                  : ScoreTile<false, kPlain>(r0, args.head_dim, kv, x, scores_of(r0)));
  }
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    const bool begins = kv.template BeginsSomeRow<kPlain>(r0);
    ExponentiateTile<kPlain>(r0, begins || rescale[(r0 - begin) / kRowTile], r0 < finished, kv, x,
                             scores_of(r0));
  }
  if (begin < finished) FinishDenominators(args, begin, std::min(end, finished), x);
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    SumTile(args, r0, kv.template BeginsRow<kPlain>(r0), r0 < finished, kv, x, scores_of(r0));
  }
}

template <bool kPlain, class E>
void AttendVariant(const AttendArgs<typename E::Tensor>& args, float* scratch) {
  using Packed = typename E::Packed;
  const int64_t c = args.head_dim;
  const int64_t rows = PackedRows(args.queries);
  ScratchArena arena(scratch);
  QueryBlock<E> x;
  x.width = PackedWidth(c);
  const SoftmaxVariant& variant = args.variant;
  x.cap = kPlain ? 0 : variant.cap * kLog2E;
  x.slope = variant.slope * kLog2E;
  x.sink = variant.sink * kLog2E;
  x.scale = x.cap == 0 ? args.scale * kLog2E : args.scale / variant.cap;
  x.sum = arena.Take<float>(rows * x.width);
  x.denominator = arena.Take<float>(rows * kDenominatorWidth);
  x.maximum = arena.Take<float>(PackedWidth(rows) + kDenominatorWidth);
  x.inverse = arena.Take<float>(PackedWidth(rows) + kDenominatorWidth);
  x.scores = arena.Take<float>(kScoreRows * kKeyBlock);
  Packed* const k = arena.Take<Packed>(x.width / E::kTerms * kKeyBlock);
  Packed* const v = arena.Take<Packed>(kKeyBlock / E::kTerms * x.width);
  Packed* const q = arena.Take<Packed>(rows * x.width / E::kTerms);
  x.key_bias = variant.key_bias == nullptr ? nullptr : arena.Take<float>(kKeyBlock);
  x.own_bias = arena.Take<float>(PackedWidth(rows));
  arena.CheckWithin(AttendScratchBytes(args.queries, c));
  if (x.key_bias != nullptr) {
    std::fill_n(x.own_bias, rows, 0.0f);
    variant.CopyKeyBias(0, args.offset, args.queries, x.own_bias);
  }

  // f32 queries in whole tiles need no packing.
  bool packs_q = true;
  if constexpr (std::is_same<typename E::Tensor, Packed>::value) {
    packs_q = args.queries % kRowTile != 0;
    x.q = args.q;
    x.q_stride = args.q_stride;
  }
  if (packs_q) {
    PackLeft<E>(args.q, args.q_stride, args.queries, c, q, x.width);
    x.q = q;
    x.q_stride = x.width / E::kTerms;
  }
  std::fill_n(x.maximum, PackedWidth(rows), 0.0f);
  const auto [offset, n_keys] =
      ComputeCausalExtent(args.offset, args.queries, args.keys, variant.window);
  const int64_t window = GetWindow(variant, args.keys == 0, offset + rows);
  for (int64_t j0 = FirstKeyBlock(offset, window); j0 < n_keys; j0 += kKeyBlock) {
    const KvBlock<E> kv = {k, v, std::min(kKeyBlock, n_keys - j0), offset - j0, window, j0 == 0};
    PackTransposed<E>(args.k + j0 * args.kv_stride, args.kv_stride, kv.count, c, k);
    PackRight<E>(args.v + j0 * args.kv_stride, args.kv_stride, kv.count, c, v, x.width);
    if (x.key_bias != nullptr) variant.CopyKeyBias(0, j0, kv.count, x.key_bias);

    // First tile that attends to one of these keys, and first that attends to the next block.
    const int64_t from = std::max<int64_t>(0, -kv.diagonal) / kRowTile * kRowTile;
    const int64_t finished =
        j0 + kKeyBlock < n_keys
            ? std::max<int64_t>(0, kKeyBlock - kv.diagonal) / kRowTile * kRowTile
            : rows;
    // First tile whose windows are entirely after these keys.
    const int64_t end = kPlain
                            ? args.queries
                            : std::min(args.queries, RoundUp(kv.count - kv.FirstKey(0), kRowTile));
    for (int64_t r0 = from; r0 < end; r0 += kScoreRows) {
      AttendRows<kPlain>(args, r0, std::min(end, r0 + kScoreRows), finished, kv, x);
    }
  }
}

template <class E>
void Attend(const AttendArgs<typename E::Tensor>& args, float* scratch) {
  if (args.variant.IsPlain()) {
    AttendVariant<true, E>(args, scratch);
  } else {
    AttendVariant<false, E>(args, scratch);
  }
}

AttendFn<float> SelectAttendF32() { return Attend<F32Operands<float>>; }
AttendFn<uint16_t> SelectAttendBf16() {
#if HWY_TARGET == HWY_AVX3
  if (UsesBf16Pairs()) return Attend<Bf16x2Operands>;
#endif
  return Attend<F32Operands<uint16_t>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAttendF32);
HWY_EXPORT(SelectAttendBf16);

template <>
AttendFn<float> ChooseAttend<float>() {
  return HWY_DYNAMIC_DISPATCH(SelectAttendF32)();
}
template <>
AttendFn<uint16_t> ChooseAttend<uint16_t>() {
  return HWY_DYNAMIC_DISPATCH(SelectAttendBf16)();
}

int64_t AttendScratchBytes(int64_t queries, int64_t head_dim) {
  const int64_t rows = PackedRows(queries), width = PackedWidth(head_dim);
  const int64_t floats = rows * (2 * width + kDenominatorWidth) +
                         2 * (PackedWidth(rows) + kDenominatorWidth) + PackedWidth(rows) +
                         kKeyBlock * (kScoreRows + 2 * width + 1);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
