// The forward core of attention. Softmax over blocks of keys with a running maximum and sum:
// Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); the blocking is that of
// Dao et al., "FlashAttention" (2022), algorithm 1.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/attention/bf16.h"
#include "runtime/kernels/attention/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/attention/tiles-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What lives as long as a block of queries. The maxima are in units of log 2.
struct Queries {
  int64_t width;
  const float* q;  // where the tensor holds floats and whole tiles of rows, the tensor
  int64_t q_stride;
  float scale;     // of the scores, over log 2
  float* sum;      // [rows][width], probability-weighted values so far
  float* total;    // [rows][kTotalWidth], of the exponentials so far
  float* inverse;  // [rows], of the whole total
  float* maximum;  // [rows], to which these are relative
  float* scores;   // [kScoreRows][kKeyBlock]
};

// Keys at hand: the block [first, first + count), of which row r of the queries sees those up to
// r + diagonal.
struct Keys {
  const float* columns;  // [head_dim][kKeyBlock]
  const float* values;   // [kKeyBlock][width]
  int64_t count;
  int64_t diagonal;
  bool first;

  // How many of them some row of the tile at r0 sees.
  int64_t SeenBy(int64_t r0) const { return std::min(count, r0 + kRowTile + diagonal); }
};

// Raises the maxima of the tile's rows whose scores (less the maximum, of `vectors` vectors) exceed
// it by too much, and all in the first block of keys, and rescales what such a row holds. `raised`
// gets by how much, to be taken from the scores.
HWY_INLINE void RaiseMaxima(int64_t r0, const float* scores, int64_t vectors, const Keys& keys,
                            const Queries& x, float* raised) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
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
  if (keys.first) {
    std::copy_n(raised, kRowTile, x.maximum + r0);
    return;
  }
  for (int64_t r = 0; r < kRowTile; ++r) {
    // By row: a row's result is its own affair, whatever its neighbours are.
    if (!(raised[r] > kRaiseAbove)) {
      raised[r] = 0;
      continue;
    }
    x.maximum[r0 + r] += raised[r];
    const Vf decay = Exp2(d, hn::Set(d, -raised[r]));
    float* total = x.total + (r0 + r) * kTotalWidth;
    hn::Store(hn::Mul(hn::Load(d, total), decay), d, total);
    float* sum = x.sum + (r0 + r) * x.width;
    for (int64_t e = 0; e < x.width; e += lanes) {
      hn::Store(hn::Mul(hn::Load(d, sum + e), decay), d, sum + e);
    }
  }
}

// Scores of a tile of queries [r0, +kRowTile) and the keys at hand, less the maxima. True if some
// exceed these by too much. kWhole: all keys are seen by all rows.
template <bool kWhole>
HWY_INLINE bool ScoreTile(int64_t r0, int64_t c, const Keys& keys, const Queries& x,
                          float* scores) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Those that the first row sees whole.
  const int64_t whole_vectors = std::min(keys.count, r0 + keys.diagonal + 1) / lanes;
  const float* maximum = x.maximum + r0;
  const Vf scale = hn::Set(d, x.scale);
  Vf over = hn::Set(d, kMinusInfinity);
  MultiplyRows(
      {x.q + r0 * x.q_stride, x.q_stride, 1}, keys.columns, kKeyBlock, c,
      VectorCount(keys.SeenBy(r0)), FromZero(), [&](int64_t r, int64_t v, Vf acc) HWY_ATTR {
        Vf score = hn::MulSub(acc, scale, hn::Set(d, maximum[r]));
        if (!kWhole && v >= whole_vectors) {
          const int64_t count = std::min(keys.count, r0 + r + keys.diagonal + 1) - v * lanes;
          const auto mask =
              hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, std::min(lanes, count))));
          score = hn::IfThenElse(mask, score, hn::Set(d, kMinusInfinity));
        }
        over = hn::Max(over, score);
        hn::Store(score, d, scores + r * kKeyBlock + v * lanes);
      });
  return !hn::AllFalse(d, hn::Gt(over, hn::Set(d, kRaiseAbove)));
}

// Makes exponentials of the tile's scores and adds them to the totals, which become single numbers
// in `inverse` when these keys are the `last` that the tile sees.
HWY_INLINE void ExponentiateTile(int64_t r0, bool raise, bool last, const Keys& keys,
                                 const Queries& x, float* scores) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t vectors = VectorCount(keys.SeenBy(r0));
  HWY_ALIGN float raised[kRowTile] = {};
  if (raise) RaiseMaxima(r0, scores, vectors, keys, x, raised);
  for (int64_t r = 0; r < kRowTile; ++r) {
    float* total = x.total + (r0 + r) * kTotalWidth;
    Vf sum = keys.first ? hn::Zero(d) : hn::Load(d, total);
    float* row = scores + r * kKeyBlock;
    const Vf less = hn::Set(d, raised[r]);
    for (int64_t v = 0; v < vectors; ++v) {
      const Vf p = Exp2(d, hn::Sub(hn::Load(d, row + v * lanes), less));
      hn::Store(p, d, row + v * lanes);
      sum = hn::Add(sum, p);
    }
    hn::Store(sum, d, total);
  }
  if (!last) return;
  for (int64_t r = 0; r < kRowTile; r += 4) {
    const float* total = x.total + (r0 + r) * kTotalWidth;
    FoldLanes(d, hn::Load(d, total), hn::Load(d, total + kTotalWidth),
              hn::Load(d, total + 2 * kTotalWidth), hn::Load(d, total + 3 * kTotalWidth), Sum(),
              x.inverse + r0 + r);
  }
}

// lse = log(2^maximum total) of rows [begin, end), and the inverse of the total.
template <class T>
HWY_INLINE void FinishTotals(const AttendArgs<T>& args, int64_t begin, int64_t end,
                             const Queries& x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = begin; r < end; r += lanes) {
    const Vf total = hn::LoadU(d, x.inverse + r);
    const int64_t rows = std::min(lanes, args.queries - r);
    if (args.lse != nullptr && rows > 0) {
      const Vf lse = hn::MulAdd(hn::LoadU(d, x.maximum + r), hn::Set(d, kLn2), hn::Log(d, total));
      Tail<Df>(d, rows).Store(lse, d, args.lse + r);
    }
    hn::StoreU(hn::Div(hn::Set(d, 1.0f), total), d, x.inverse + r);
  }
}

// Adds what the keys at hand give to the tile's sums, or, after the last keys, makes the context.
template <class T>
HWY_INLINE void SumTile(const AttendArgs<T>& args, int64_t r0, bool last, const Keys& keys,
                        const Queries& x, const float* p) {
  const LeftOperand left = {p, kKeyBlock, 1};
  const int64_t seen = keys.SeenBy(r0), channels = VectorCount(args.head_dim);
  float* sum = x.sum + r0 * x.width;
  const FromMemory from_sum{sum, x.width};
  const ToMemory to_sum{sum, x.width};
  const ToRows<T> to_context(args.context + r0 * args.context_stride, args.context_stride,
                             args.queries - r0, args.head_dim, x.inverse + r0, 1);
  if (keys.first && last) {
    MultiplyRows(left, keys.values, x.width, seen, channels, FromZero(), to_context);
  } else if (keys.first) {
    MultiplyRows(left, keys.values, x.width, seen, channels, FromZero(), to_sum);
  } else if (last) {
    MultiplyRows(left, keys.values, x.width, seen, channels, from_sum, to_context);
  } else {
    MultiplyRows(left, keys.values, x.width, seen, channels, from_sum, to_sum);
  }
}

// Queries [begin, end), at most kScoreRows, against the keys at hand, which are the last that those
// before `finished` see.
template <class T>
void AttendRows(const AttendArgs<T>& args, int64_t begin, int64_t end, int64_t finished,
                const Keys& keys, const Queries& x, RowsAhead* ahead) {
  const auto scores_of = [&](int64_t r0) { return x.scores + (r0 - begin) * kKeyBlock; };
  // The first row that sees all of these keys.
  const int64_t whole = keys.count % static_cast<int64_t>(hn::Lanes(Df())) == 0
                            ? keys.count - 1 - keys.diagonal
                            : end;
  bool raise[kScoreRows / kRowTile];
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    ahead->Step();
    raise[(r0 - begin) / kRowTile] =
        (r0 < whole ? ScoreTile<false>(r0, args.head_dim, keys, x, scores_of(r0))
                    : ScoreTile<true>(r0, args.head_dim, keys, x, scores_of(r0)));
  }
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    ExponentiateTile(r0, keys.first || raise[(r0 - begin) / kRowTile], r0 < finished, keys, x,
                     scores_of(r0));
  }
  if (begin < finished) FinishTotals(args, begin, std::min(end, finished), x);
  for (int64_t r0 = begin; r0 < end; r0 += kRowTile) {
    ahead->Step();
    SumTile(args, r0, r0 < finished, keys, x, scores_of(r0));
  }
}

template <class T>
void Attend(const AttendArgs<T>& args, float* scratch) {
  const int64_t c = args.head_dim;
  const int64_t packed = PackedRows(args.queries);
  Queries x;
  x.width = PackedWidth(c);
  x.scale = args.scale * kLog2E;
  ScratchPieces pieces(scratch);
  x.sum = pieces.Take(packed * x.width);
  x.total = pieces.Take(packed * kTotalWidth);
  x.maximum = pieces.Take(PackedWidth(packed) + kTotalWidth);
  x.inverse = pieces.Take(PackedWidth(packed) + kTotalWidth);
  x.scores = pieces.Take(kScoreRows * kKeyBlock);
  float* const columns = pieces.Take(kKeyBlock * x.width);
  float* const values = pieces.Take(kKeyBlock * x.width);
  float* const q = pieces.Take(packed * x.width);
  pieces.CheckWithin(AttendScratchBytes(args.queries, c));

  if constexpr (std::is_same<T, float>::value) {
    x.q = args.q;
    x.q_stride = args.q_stride;
  }
  if (!std::is_same<T, float>::value || args.queries % kRowTile != 0) {
    PackTiles(args.q, args.q_stride, args.queries, c, q, x.width);
    x.q = q;
    x.q_stride = x.width;
  }
  std::fill_n(x.maximum, PackedWidth(packed), 0.0f);
  const int64_t n_keys = args.offset + args.queries;
  for (int64_t j0 = 0; j0 < n_keys; j0 += kKeyBlock) {
    Keys keys;
    keys.columns = columns;
    keys.values = values;
    keys.count = std::min(kKeyBlock, n_keys - j0);
    keys.diagonal = args.offset - j0;
    keys.first = j0 == 0;
    PackTransposed(args.k + j0 * args.kv_stride, args.kv_stride, keys.count, c, columns);
    PackRows(args.v + j0 * args.kv_stride, args.kv_stride, keys.count, c, values, x.width);

    // The first tile that sees one of these keys, and the first that sees one of the next block's.
    const int64_t from = std::max<int64_t>(0, -keys.diagonal) / kRowTile * kRowTile;
    const int64_t finished =
        j0 + kKeyBlock < n_keys
            ? std::max<int64_t>(0, kKeyBlock - keys.diagonal) / kRowTile * kRowTile
            : packed;
    RowsAhead ahead = After(args, j0, (args.queries - from) / (kRowTile / 2));
    for (int64_t r0 = from; r0 < args.queries; r0 += kScoreRows) {
      AttendRows(args, r0, std::min(args.queries, r0 + kScoreRows), finished, keys, x, &ahead);
    }
  }
}

AttendFn<float> SelectAttendF32() { return Attend<float>; }
AttendFn<uint16_t> SelectAttendBf16() {
  if (const AttendFn<uint16_t> fast = FindBf16Attend()) return fast;
  return Attend<uint16_t>;
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
  const int64_t packed = PackedRows(queries), width = PackedWidth(head_dim);
  const int64_t floats = packed * (2 * width + kTotalWidth) +
                         2 * (PackedWidth(packed) + kTotalWidth) +
                         kKeyBlock * (kScoreRows + 2 * width);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
