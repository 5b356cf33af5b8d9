// The forward core of attention for bf16 by dot products of pairs. The same steps as in
// attention_forward.cc, whose comments hold here too, tile by tile.
#include "runtime/base/divide.h"
#include "runtime/kernels/attention/prefetch.h"
#include "runtime/kernels/attention/bf16.h"
#include "runtime/kernels/attention/bf16_tiles.h"
#include "runtime/kernels/simd/cpu_features.h"

#if PLUMB_ATTENTION_BF16

#include <limits>

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace plumb {
namespace attention_bf16 {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Queries {
  int64_t width;
  float scale;     // of the scores, over log 2
  uint32_t* q;     // [rows][width / 2]
  float* sum;      // [rows][width]
  float* total;    // [rows][kLanes]
  float* maximum;  // [rows]
  float* scores;   // [kRowTile][kKeyBlock]
  uint32_t* p;     // [kRowTile][kKeyBlock / 2]
};

struct Keys {
  const uint32_t* columns;  // [width / 2][kKeyBlock]
  const uint32_t* values;   // [kKeyBlock / 2][width]
  int64_t count;
  int64_t diagonal;
  bool first;
};

PLUMB_INLINE void RaiseMaxima(int64_t r0, int64_t vectors, const Keys& keys, const Queries& x,
                              float* raised) {
  for (int64_t r = 0; r < kRowTile; ++r) {
    const float* row = x.scores + r * kKeyBlock;
    __m512 tops = _mm512_load_ps(row);
    for (int64_t v = 1; v < vectors; ++v) {
      tops = _mm512_max_ps(tops, _mm512_load_ps(row + v * kLanes));
    }
    const float top = _mm512_reduce_max_ps(tops);
    if (!keys.first && !(top > kRaiseAbove)) continue;
    raised[r] = top;
    x.maximum[r0 + r] += top;
    if (keys.first) continue;
    const __m512 decay = Exp2(_mm512_set1_ps(-top));
    float* total = x.total + (r0 + r) * kLanes;
    _mm512_store_ps(total, _mm512_mul_ps(_mm512_load_ps(total), decay));
    float* sum = x.sum + (r0 + r) * x.width;
    for (int64_t e = 0; e < x.width; e += kLanes) {
      _mm512_store_ps(sum + e, _mm512_mul_ps(_mm512_load_ps(sum + e), decay));
    }
  }
}

// What becomes of the scores' products: relative scores in memory, and the largest of each lane.
template <bool kWhole>
struct ToScores {
  int64_t r0;
  const Keys& keys;
  const Queries& x;
  __m512* over;

  template <int kVectors>
  PLUMB_INLINE void operator()(const Tile<kVectors>& tile, int64_t v0) const {
    const __m512 scale = _mm512_set1_ps(x.scale);
    const int64_t whole_vectors = std::min(keys.count, r0 + keys.diagonal + 1) / kLanes;
    __m512 largest = *over;
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        __m512 score = _mm512_fmsub_ps(tile.acc[r][v], scale, _mm512_set1_ps(x.maximum[r0 + r]));
        if (!kWhole && v0 + v >= whole_vectors) {
          const int64_t seen = std::min(keys.count, r0 + r + keys.diagonal + 1);
          score = _mm512_mask_mov_ps(_mm512_set1_ps(kMinusInfinity),
                                     FirstLanes(seen - (v0 + v) * kLanes), score);
        }
        largest = _mm512_max_ps(largest, score);
        _mm512_store_ps(x.scores + r * kKeyBlock + (v0 + v) * kLanes, score);
      }
    }
    *over = largest;
  }
};

// After the last keys of the tile at r0: its log-sum-exps, and the inverses of its totals.
PLUMB_INLINE void FinishTotals(const AttendArgs<uint16_t>& args, int64_t r0, const Queries& x,
                               float* inverse) {
  alignas(64) float totals[kLanes];
  std::fill_n(totals + kRowTile, kLanes - kRowTile, 1.0f);
  for (int64_t r = 0; r < kRowTile; ++r) {
    totals[r] = _mm512_reduce_add_ps(_mm512_load_ps(x.total + (r0 + r) * kLanes));
  }
  const __m512 total = _mm512_load_ps(totals);
  _mm512_store_ps(inverse, _mm512_div_ps(_mm512_set1_ps(1.0f), total));
  if (args.lse == nullptr) return;
  const __mmask16 rows = FirstLanes(std::min(kRowTile, args.queries - r0));
  const __m512 maximum = _mm512_maskz_loadu_ps(rows, x.maximum + r0);
  _mm512_mask_storeu_ps(args.lse + r0, rows,
                        _mm512_fmadd_ps(maximum, _mm512_set1_ps(kLn2), Log(total)));
}

// `last`: the tile sees no keys after these.
template <bool kWhole>
PLUMB_INLINE void AttendTile(const AttendArgs<uint16_t>& args, int64_t r0, bool last,
                             const Keys& keys, const Queries& x, RowsAhead* ahead) {
  const int64_t c = args.head_dim;
  const int64_t seen = std::min(keys.count, r0 + kRowTile + keys.diagonal);
  const int64_t vectors = VectorCount(seen);
  const int64_t q_stride = x.width / 2;
  ahead->Step();
  __m512 over = _mm512_set1_ps(kMinusInfinity);
  MultiplyRows({x.q + r0 * q_stride, q_stride, 1}, keys.columns, kKeyBlock, CeilDiv(c, 2), vectors,
               FromZero(), ToScores<kWhole>{r0, keys, x, &over});
  float raised[kRowTile] = {};
  if (keys.first || _mm512_cmp_ps_mask(over, _mm512_set1_ps(kRaiseAbove), _CMP_GT_OQ) != 0) {
    RaiseMaxima(r0, vectors, keys, x, raised);
  }

  for (int64_t r = 0; r < kRowTile; ++r) {
    float* total = x.total + (r0 + r) * kLanes;
    __m512 sum = keys.first ? _mm512_setzero_ps() : _mm512_load_ps(total);
    const float* row = x.scores + r * kKeyBlock;
    const __m512 less = _mm512_set1_ps(raised[r]);
    uint32_t* words = x.p + r * kKeyBlock / 2;
    for (int64_t v = 0; v < vectors; v += 2) {
      const __m512 p0 = Exp2(_mm512_sub_ps(_mm512_load_ps(row + v * kLanes), less));
      __m512 p1 = _mm512_setzero_ps();
      if (v + 1 < vectors) {
        p1 = Exp2(_mm512_sub_ps(_mm512_load_ps(row + (v + 1) * kLanes), less));
      }
      sum = _mm512_add_ps(sum, _mm512_add_ps(p0, p1));
      _mm512_store_si512(words + v * kLanes / 2, NarrowRow(p0, p1));
    }
    _mm512_store_ps(total, sum);
  }

  ahead->Step();
  const LeftOperand p = {x.p, kKeyBlock / 2, 1};
  float* sum = x.sum + r0 * x.width;
  const int64_t pairs = CeilDiv(seen, 2), channels = VectorCount(c);
  const FromMemory from_sum{sum, x.width};
  const ToMemory to_sum{sum, x.width};
  alignas(64) float inverse[kLanes];
  if (last) FinishTotals(args, r0, x, inverse);
  const ToRows to_context{args.context + r0 * args.context_stride,
                          args.context_stride,
                          args.queries - r0,
                          c,
                          inverse,
                          1};
  if (keys.first && last) {
    MultiplyRows(p, keys.values, x.width, pairs, channels, FromZero(), to_context);
  } else if (keys.first) {
    MultiplyRows(p, keys.values, x.width, pairs, channels, FromZero(), to_sum);
  } else if (last) {
    MultiplyRows(p, keys.values, x.width, pairs, channels, from_sum, to_context);
  } else {
    MultiplyRows(p, keys.values, x.width, pairs, channels, from_sum, to_sum);
  }
}

void Attend(const AttendArgs<uint16_t>& args, float* scratch) {
  const int64_t c = args.head_dim;
  const int64_t packed = PackedRows(args.queries);
  Queries x;
  x.width = PackedWidth(c);
  x.scale = args.scale * kLog2E;
  ScratchPieces pieces(scratch);
  x.sum = pieces.Take(packed * x.width);
  x.total = pieces.Take(packed * kLanes);
  x.maximum = pieces.Take(PackedWidth(packed));
  x.scores = pieces.Take(kRowTile * kKeyBlock);
  uint32_t* const columns = pieces.TakeWords(kKeyBlock * x.width / 2);
  uint32_t* const values = pieces.TakeWords(kKeyBlock / 2 * x.width);
  x.p = pieces.TakeWords(kRowTile * kKeyBlock / 2);
  x.q = pieces.TakeWords(packed * x.width / 2);
  pieces.CheckWithin(AttendScratchBytes(args.queries, c));

  PackWords(args.q, args.q_stride, args.queries, c, x.q, x.width);
  std::fill_n(x.maximum, PackedWidth(packed), 0.0f);
  const int64_t n_keys = args.offset + args.queries;
  for (int64_t j0 = 0; j0 < n_keys; j0 += kKeyBlock) {
    Keys keys;
    keys.columns = columns;
    keys.values = values;
    keys.count = std::min(kKeyBlock, n_keys - j0);
    keys.diagonal = args.offset - j0;
    keys.first = j0 == 0;
    PackColumns(args.k + j0 * args.kv_stride, args.kv_stride, keys.count, c, columns);
    PackPairs(args.v + j0 * args.kv_stride, args.kv_stride, keys.count, keys.count, c, values,
              x.width);

    const int64_t from = std::max<int64_t>(0, -keys.diagonal) / kRowTile * kRowTile;
    const int64_t whole = std::max<int64_t>(0, keys.count - 1 - keys.diagonal);
    const int64_t finished =
        j0 + kKeyBlock < n_keys
            ? std::max<int64_t>(0, kKeyBlock - keys.diagonal) / kRowTile * kRowTile
            : packed;
    RowsAhead ahead = After(args, j0, (args.queries - from) / (kRowTile / 2));
    int64_t r0 = from;
    for (; r0 < args.queries && (r0 < whole || keys.count % kLanes != 0); r0 += kRowTile) {
      AttendTile<false>(args, r0, r0 < finished, keys, x, &ahead);
    }
    for (; r0 < args.queries; r0 += kRowTile)
      AttendTile<true>(args, r0, r0 < finished, keys, x, &ahead);
  }
}

}  // namespace
}  // namespace attention_bf16
}  // namespace plumb

#pragma GCC pop_options

#endif  // PLUMB_ATTENTION_BF16

namespace plumb {

AttendFn<uint16_t> FindBf16Attend() {
#if PLUMB_ATTENTION_BF16
  if (UsesBf16Pairs()) return attention_bf16::Attend;
#endif
  return nullptr;
}

}  // namespace plumb
