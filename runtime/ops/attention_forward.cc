// The forward core of attention. Softmax over blocks of keys with a running maximum and sum:
// Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); the blocking is that of
// Dao et al., "FlashAttention" (2022), algorithm 1.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/ops/attention_bf16.h"
#include "runtime/ops/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/attention_forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/attention_tiles-inl.h"
#include "runtime/ops/simd_fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Floats of a row's sum of exponentials: a vector of partial sums.
constexpr int64_t kTotalWidth = 16;

// What lives as long as a block of queries. The maxima are in units of log 2.
struct Queries {
  int64_t width;
  float* q;        // [rows][width], times scale / log 2
  float* sum;      // [rows][width], probability-weighted values so far
  float* total;    // [rows][kTotalWidth], of the exponentials so far
  float* maximum;  // [rows], to which these are relative
  float* scores;   // [kRowTile][kKeyBlock]
};

// Keys at hand: the block [first, first + count), of which row r of the queries sees those up to
// r + diagonal.
struct Keys {
  const float* columns;  // [head_dim][kKeyBlock]
  const float* values;   // [kKeyBlock][width]
  int64_t count;
  int64_t diagonal;
  bool first;
};

// Raises the maxima of the tile's rows whose scores (less the maximum, of `vectors` vectors) exceed
// it by too much, and all in the first block of keys, and rescales what such a row holds. `raised`
// gets by how much, to be taken from the scores.
HWY_INLINE void RaiseMaxima(int64_t r0, int64_t vectors, const Keys& keys, const Queries& x,
                            float* raised) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  static_assert(kRowTile % 4 == 0, "FoldLanes takes four rows");
  for (int64_t r = 0; r < kRowTile; r += 4) {
    const float* row = x.scores + r * kKeyBlock;
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
    const Vf decay = Exp2(hn::Set(d, -raised[r]));
    float* total = x.total + (r0 + r) * kTotalWidth;
    hn::Store(hn::Mul(hn::Load(d, total), decay), d, total);
    float* sum = x.sum + (r0 + r) * x.width;
    for (int64_t e = 0; e < x.width; e += lanes) {
      hn::Store(hn::Mul(hn::Load(d, sum + e), decay), d, sum + e);
    }
  }
}

// A tile of queries [r0, +kRowTile) against the keys at hand. kWhole: all of them are seen by all
// rows.
template <bool kWhole>
HWY_INLINE void AttendTile(int64_t r0, int64_t c, const Keys& keys, const Queries& x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t seen = std::min(keys.count, r0 + kRowTile + keys.diagonal);
  const int64_t vectors = VectorCount(seen);

  // Those that the first row sees whole.
  const int64_t whole_vectors = std::min(keys.count, r0 + keys.diagonal + 1) / lanes;
  const float* maximum = x.maximum + r0;
  Vf over = hn::Set(d, kMinusInfinity);
  MultiplyRows({x.q + r0 * x.width, x.width, 1}, keys.columns, kKeyBlock, c, vectors, FromZero(),
               [&](int64_t r, int64_t v, Vf acc) HWY_ATTR {
                 Vf score = hn::Sub(acc, hn::Set(d, maximum[r]));
                 if (!kWhole && v >= whole_vectors) {
                   const int64_t count =
                       std::min(keys.count, r0 + r + keys.diagonal + 1) - v * lanes;
                   const auto mask = hn::FirstN(
                       d, static_cast<size_t>(std::max<int64_t>(0, std::min(lanes, count))));
                   score = hn::IfThenElse(mask, score, hn::Set(d, kMinusInfinity));
                 }
                 over = hn::Max(over, score);
                 hn::Store(score, d, x.scores + r * kKeyBlock + v * lanes);
               });
  HWY_ALIGN float raised[kRowTile] = {};
  if (keys.first || !hn::AllFalse(d, hn::Gt(over, hn::Set(d, kRaiseAbove)))) {
    RaiseMaxima(r0, vectors, keys, x, raised);
  }

  for (int64_t r = 0; r < kRowTile; ++r) {
    float* total = x.total + (r0 + r) * kTotalWidth;
    Vf sum = keys.first ? hn::Zero(d) : hn::Load(d, total);
    float* row = x.scores + r * kKeyBlock;
    const Vf less = hn::Set(d, raised[r]);
    for (int64_t v = 0; v < vectors; ++v) {
      const Vf p = Exp2(hn::Sub(hn::Load(d, row + v * lanes), less));
      hn::Store(p, d, row + v * lanes);
      sum = hn::Add(sum, p);
    }
    hn::Store(sum, d, total);
  }

  const LeftOperand p = {x.scores, kKeyBlock, 1};
  float* sum = x.sum + r0 * x.width;
  const ToMemory to_sum{sum, x.width};
  if (keys.first) {
    MultiplyRows(p, keys.values, x.width, seen, VectorCount(c), FromZero(), to_sum);
  } else {
    MultiplyRows(p, keys.values, x.width, seen, VectorCount(c), FromMemory{sum, x.width}, to_sum);
  }
}

// context = sum / total, lse = log(2^maximum total).
template <class T>
void Finish(const AttendArgs<T>& args, const Queries& x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = (VectorCount(args.head_dim) - 1) * lanes;
  const FloatTail<Df> tail(d, args.head_dim - last);
  // Rows of sums become numbers at the front, where rows have been read before.
  for (int64_t r = 0; r < args.queries; r += 4) {
    const float* row = x.total + r * kTotalWidth;
    FoldLanes(d, hn::Load(d, row), hn::Load(d, row + kTotalWidth),
              hn::Load(d, row + 2 * kTotalWidth), hn::Load(d, row + 3 * kTotalWidth), Sum(),
              x.total + r);
  }
  for (int64_t r = 0; r < args.queries; r += lanes) {
    const Vf total = hn::Load(d, x.total + r);
    if (args.lse != nullptr) {
      const Vf lse = hn::MulAdd(hn::Load(d, x.maximum + r), hn::Set(d, kLn2), hn::Log(d, total));
      Tail<Df>(d, std::min(lanes, args.queries - r)).Store(lse, d, args.lse + r);
    }
    hn::Store(hn::Div(hn::Set(d, 1.0f), total), d, x.total + r);
  }
  for (int64_t r = 0; r < args.queries; ++r) {
    UnpackRow<false>(x.sum + r * x.width, hn::Set(d, x.total[r]),
                     args.context + r * args.context_stride, last, tail);
  }
}

template <class T>
void Attend(const AttendArgs<T>& args, float* scratch) {
  const int64_t c = args.head_dim;
  const int64_t packed = PackedRows(args.queries);
  Queries x;
  x.width = PackedWidth(c);
  x.q = scratch;
  x.sum = x.q + packed * x.width;
  x.total = x.sum + packed * x.width;
  x.maximum = x.total + packed * kTotalWidth;
  x.scores = x.maximum + PackedWidth(packed);
  float* columns = x.scores + kMaxRowTile * kKeyBlock;
  float* values = columns + kKeyBlock * PackedWidth(c);

  PackTiles(args.q, args.q_stride, args.queries, c, args.scale * kLog2E, x.q, x.width);
  std::fill_n(x.maximum, PackedWidth(packed), 0.0f);
  const int64_t n_keys = args.offset + args.queries;
  for (int64_t j0 = 0; j0 < n_keys; j0 += kKeyBlock) {
    Keys keys;
    keys.columns = columns;
    keys.values = values;
    keys.count = std::min(kKeyBlock, n_keys - j0);
    keys.diagonal = args.offset - j0;
    keys.first = j0 == 0;
    PackTransposed(args.k + j0 * args.kv_stride, args.kv_stride, keys.count, c, 1.0f, columns);
    PackRows(args.v + j0 * args.kv_stride, args.kv_stride, keys.count, c, 1.0f, values, x.width);

    // The first row that sees one of these keys, and the first that sees them all.
    const int64_t from = std::max<int64_t>(0, -keys.diagonal) / kRowTile * kRowTile;
    const int64_t whole = std::max<int64_t>(0, keys.count - 1 - keys.diagonal);
    int64_t r0 = from;
    for (; r0 < args.queries && r0 < whole; r0 += kRowTile) AttendTile<false>(r0, c, keys, x);
    if (keys.count % static_cast<int64_t>(hn::Lanes(Df())) == 0) {
      for (; r0 < args.queries; r0 += kRowTile) AttendTile<true>(r0, c, keys, x);
    }
    for (; r0 < args.queries; r0 += kRowTile) AttendTile<false>(r0, c, keys, x);
  }
  Finish(args, x);
}

AttendFn<float> SelectAttendF32() { return Attend<float>; }
AttendFn<uint16_t> SelectAttendBf16() {
#if HWY_TARGET == HWY_AVX3
  if (const AttendFn<uint16_t> fast = FindBf16Attend()) return fast;
#endif
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
  const int64_t floats =
      packed * (2 * width + 16) + PackedWidth(packed) + kKeyBlock * (kMaxRowTile + 2 * width);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
