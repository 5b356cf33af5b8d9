// The backward core of attention for bf16 by dot products of pairs. The same steps as in
// attention_backward.cc, whose comments hold here too.
#include "runtime/base/divide.h"
#include "runtime/kernels/attention/prefetch.h"
#include "runtime/kernels/attention/bf16.h"
#include "runtime/kernels/attention/bf16_tiles.h"
#include "runtime/kernels/simd/cpu_features.h"

#if PLUMB_ATTENTION_BF16

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace plumb {
namespace attention_bf16 {
namespace {

// Words hold two channels, or, where rows are called pairs, one channel of two rows.
struct Blocks {
  int64_t width;
  float scale;
  // Of up to kQueryRows queries of one head:
  uint32_t* q;               // [rows][width / 2]
  uint32_t* q_pairs;         // [rows / 2][width]
  uint32_t* dcontext;        // like q
  uint32_t* dcontext_pairs;  // like q_pairs
  float* dq;                 // [rows][width], without scale
  float* lse;                // [rows], in units of log 2
  float* dots;               // [rows] D
  // Of a block of keys:
  uint32_t* k_pairs;    // [kKeyBlock / 2][width]
  uint32_t* k_columns;  // [width / 2][kKeyBlock]
  uint32_t* v_columns;
  float* dk;  // [kKeyBlock][width], of these queries, without scale
  float* dv;
  // Of kGradRows queries and a block of keys:
  uint32_t* p_pairs;   // [kGradRows / 2][kKeyBlock]
  uint32_t* ds_pairs;  // the same
  // Of a tile of queries and a block of keys:
  float* p;      // [kRowTile][kKeyBlock]
  uint32_t* ds;  // [kRowTile][kKeyBlock / 2]
};

// Of row r (of the tile) keys up to `visible` + r are seen, at most n_keys; others become 0.
template <bool kWhole>
PLUMB_INLINE __m512 Select(int64_t visible, int64_t n_keys, int64_t r, int64_t v, __m512 y) {
  if constexpr (kWhole) return y;
  return _mm512_maskz_mov_ps(FirstLanes(std::min(n_keys, visible + r) - v * kLanes), y);
}

template <bool kWhole>
struct ToProbabilities {
  int64_t visible, n_keys;
  float scale;
  const float* lse;
  float* p;
  uint32_t* p_pairs;

  template <int kVectors>
  PLUMB_INLINE void operator()(const Tile<kVectors>& tile, int64_t v0) const {
    const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 4
    for (int r = 0; r < kRowTile; r += 2) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const __m512 e0 = Exp2(_mm512_fmsub_ps(tile.acc[r][v], factor, _mm512_set1_ps(lse[r])));
        const __m512 e1 =
            Exp2(_mm512_fmsub_ps(tile.acc[r + 1][v], factor, _mm512_set1_ps(lse[r + 1])));
        const __m512 p0 = Select<kWhole>(visible, n_keys, r, v0 + v, e0);
        const __m512 p1 = Select<kWhole>(visible, n_keys, r + 1, v0 + v, e1);
        const int64_t at = (v0 + v) * kLanes;
        _mm512_store_ps(p + r * kKeyBlock + at, p0);
        _mm512_store_ps(p + (r + 1) * kKeyBlock + at, p1);
        _mm512_store_si512(p_pairs + r / 2 * kKeyBlock + at, NarrowPair(p0, p1));
      }
    }
  }
};

template <bool kWhole>
struct ToScoreGradients {
  int64_t visible, n_keys;
  const float* dots;
  const float* p;
  uint32_t* ds;
  uint32_t* ds_pairs;

  template <int kVectors>
  PLUMB_INLINE void operator()(const Tile<kVectors>& tile, int64_t v0) const {
    __m512 row[2][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRowTile; r += 2) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const __m512 dp = _mm512_sub_ps(tile.acc[r + i][v], _mm512_set1_ps(dots[r + i]));
          const __m512 weight = _mm512_load_ps(p + (r + i) * kKeyBlock + (v0 + v) * kLanes);
          row[i][v] = Select<kWhole>(visible, n_keys, r + i, v0 + v, _mm512_mul_ps(weight, dp));
        }
        uint32_t* to = ds + (r + i) * kKeyBlock / 2 + v0 * kLanes / 2;
        if constexpr (kVectors == 2) {
          _mm512_store_si512(to, NarrowRow(row[i][0], row[i][1]));
        } else {
          _mm256_store_si256(reinterpret_cast<__m256i*>(to), Narrow(row[i][0]));
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        _mm512_store_si512(ds_pairs + r / 2 * kKeyBlock + (v0 + v) * kLanes,
                           NarrowPair(row[0][v], row[1][v]));
      }
    }
  }
};

template <bool kWhole>
PLUMB_INLINE void DifferentiateTile(int64_t i, int64_t r0, int64_t c, int64_t visible,
                                    int64_t n_keys, int64_t vectors, const Blocks& x) {
  const int64_t stride = x.width / 2, depth = CeilDiv(c, 2), pairs_at = r0 / 2 * kKeyBlock;
  MultiplyRows(
      {x.q + i * stride, stride, 1}, x.k_columns, kKeyBlock, depth, vectors, FromZero(),
      ToProbabilities<kWhole>{visible, n_keys, x.scale, x.lse + i, x.p, x.p_pairs + pairs_at});
  MultiplyRows(
      {x.dcontext + i * stride, stride, 1}, x.v_columns, kKeyBlock, depth, vectors, FromZero(),
      ToScoreGradients<kWhole>{visible, n_keys, x.dots + i, x.p, x.ds, x.ds_pairs + pairs_at});
}

// kOnly: there are no other queries nor keys, and the sums go to where args says.
template <bool kOnly>
void DifferentiateBlock(const AttendGradArgs<uint16_t>& args, int64_t i0, int64_t rows,
                        int64_t n_keys, int64_t diagonal, const Blocks& x, RowsAhead* ahead) {
  const int64_t c = args.head_dim;
  const int64_t channels = VectorCount(c);
  const auto seen_by = [&](int64_t i) { return std::min(n_keys, i + diagonal + 1); };
  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    ahead->Step();
    const int64_t i = i0 + r0;
    const int64_t seen = seen_by(i + kRowTile - 1);
    const int64_t visible = i + diagonal + 1;
    const int64_t vectors = VectorCount(seen);
    if (std::min(visible, n_keys) >= vectors * kLanes) {
      DifferentiateTile<true>(i, r0, c, visible, n_keys, vectors, x);
    } else {
      DifferentiateTile<false>(i, r0, c, visible, n_keys, vectors, x);
    }
    ahead->Step();
    const LeftOperand ds = {x.ds, kKeyBlock / 2, 1};
    if constexpr (kOnly) {
      MultiplyRows(
          ds, x.k_pairs, x.width, CeilDiv(seen, 2), channels, FromZero(),
          ToRows{args.dq + i * args.q_stride, args.q_stride, rows - r0, c, &args.scale, 0});
    } else {
      float* dq = x.dq + i * x.width;
      MultiplyRows(ds, x.k_pairs, x.width, CeilDiv(seen, 2), channels, FromMemory{dq, x.width},
                   ToMemory{dq, x.width});
    }
  }

  const int64_t seen = seen_by(i0 + rows - 1);
  for (int64_t g = 0; g < seen; g += kRowTile) {
    const int64_t from = std::max<int64_t>(0, g - diagonal - i0);
    const int64_t depth = (rows - from + 1) / 2;
    const int64_t left = from / 2 * kKeyBlock + g, right = (i0 + from) / 2 * x.width;
    ahead->Step();
    const LeftOperand p = {x.p_pairs + left, 1, kKeyBlock}, ds = {x.ds_pairs + left, 1, kKeyBlock};
    const uint32_t *dcontext = x.dcontext_pairs + right, *q = x.q_pairs + right;
    if constexpr (kOnly) {
      const float one = 1.0f;
      const int64_t stride = args.kv_stride, at = g * stride;
      MultiplyRows(p, dcontext, x.width, depth, channels, FromZero(),
                   ToRows{args.dv + at, stride, n_keys - g, c, &one, 0});
      ahead->Step();
      MultiplyRows(ds, q, x.width, depth, channels, FromZero(),
                   ToRows{args.dk + at, stride, n_keys - g, c, &args.scale, 0});
    } else {
      float *dv = x.dv + g * x.width, *dk = x.dk + g * x.width;
      MultiplyRows(p, dcontext, x.width, depth, channels, FromMemory{dv, x.width},
                   ToMemory{dv, x.width});
      ahead->Step();
      MultiplyRows(ds, q, x.width, depth, channels, FromMemory{dk, x.width}, ToMemory{dk, x.width});
    }
  }
}

PLUMB_INLINE float Dot(const uint16_t* a, const uint16_t* b, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t e = 0; e < n; e += kLanes) {
    const __mmask16 mask = FirstLanes(n - e);
    sum = _mm512_fmadd_ps(Widen(_mm256_maskz_loadu_epi16(mask, a + e)),
                          Widen(_mm256_maskz_loadu_epi16(mask, b + e)), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// Adds rows to the totals, whose rows are as wide, or sets them.
PLUMB_INLINE void AddRows(const float* from, int64_t n, float factor, bool add, float* to) {
  const __m512 scale = _mm512_set1_ps(factor);
  for (int64_t e = 0; e < n; e += kLanes) {
    const __m512 sum = add ? _mm512_load_ps(to + e) : _mm512_setzero_ps();
    _mm512_store_ps(to + e, _mm512_fmadd_ps(_mm512_load_ps(from + e), scale, sum));
  }
}

PLUMB_INLINE void StoreRows(const float* from, int64_t rows, int64_t width, float factor, int64_t c,
                            uint16_t* to, int64_t stride) {
  for (int64_t j = 0; j < rows; ++j) StoreRow(from + j * width, factor, c, to + j * stride);
}

// Queries [s0, +rows) of one head against all keys that they see. `totals`: sums of dk and then dv
// over all queries, [tokens][width] each, or null when these are all of them.
void DifferentiateQueries(const AttendGradArgs<uint16_t>& args, int64_t head, int64_t s0,
                          int64_t rows, const Blocks& x, float* totals) {
  const int64_t c = args.head_dim;
  const int64_t start = s0 * args.q_stride + head * c;
  const int64_t padded = RoundUp(rows, kRowTile);
  PackWords(args.q + start, args.q_stride, rows, c, x.q, x.width);
  PackWords(args.dcontext + start, args.q_stride, rows, c, x.dcontext, x.width);
  PackPairs(args.q + start, args.q_stride, rows, padded, c, x.q_pairs, x.width);
  PackPairs(args.dcontext + start, args.q_stride, rows, padded, c, x.dcontext_pairs, x.width);
  const bool only = args.group == 1 && args.tokens <= kGradRows;
  if (!only) std::fill_n(x.dq, padded * x.width, 0.0f);
  for (int64_t r = 0; r < padded; ++r) {
    const int64_t at = start + r * args.q_stride;
    x.lse[r] = r < rows ? kLog2E * args.lse[head * args.tokens + s0 + r] : 0;
    x.dots[r] = r < rows ? Dot(args.dcontext + at, args.context + at, c) : 0;
  }

  for (int64_t j0 = 0; j0 < s0 + rows; j0 += kKeyBlock) {
    const int64_t n_keys = std::min(kKeyBlock, s0 + rows - j0);
    const uint16_t* k = args.k + j0 * args.kv_stride;
    const uint16_t* v = args.v + j0 * args.kv_stride;
    PackPairs(k, args.kv_stride, n_keys, n_keys, c, x.k_pairs, x.width);
    PackColumns(k, args.kv_stride, n_keys, c, x.k_columns);
    PackColumns(v, args.kv_stride, n_keys, c, x.v_columns);
    if (only) {
      RowsAhead ahead = After(args, head, s0, j0, 5 * rows / kRowTile);
      DifferentiateBlock<true>(args, 0, rows, n_keys, 0, x, &ahead);
      return;
    }
    const int64_t key_tiles = RoundUp(n_keys, kRowTile);
    std::fill_n(x.dk, key_tiles * x.width, 0.0f);
    std::fill_n(x.dv, key_tiles * x.width, 0.0f);

    const int64_t from = std::max<int64_t>(0, j0 - s0);
    RowsAhead ahead = After(args, head, s0, j0, 5 * (rows - from) / kRowTile);
    for (int64_t i0 = from; i0 < rows; i0 += kGradRows) {
      DifferentiateBlock<false>(args, i0, std::min(kGradRows, rows - i0), n_keys, s0 - j0, x,
                                &ahead);
    }

    if (totals == nullptr) {
      const int64_t at = j0 * args.kv_stride;
      StoreRows(x.dk, n_keys, x.width, args.scale, c, args.dk + at, args.kv_stride);
      StoreRows(x.dv, n_keys, x.width, 1.0f, c, args.dv + at, args.kv_stride);
    } else {
      const bool add = head > 0 || j0 < s0;
      float* dk = totals + j0 * x.width;
      AddRows(x.dk, n_keys * x.width, args.scale, add, dk);
      AddRows(x.dv, n_keys * x.width, 1.0f, add, dk + args.tokens * x.width);
    }
  }
  StoreRows(x.dq, rows, x.width, args.scale, c, args.dq + start, args.q_stride);
}

void AttendGrad(const AttendGradArgs<uint16_t>& args, float* scratch) {
  const int64_t packed = PackedRows(args.tokens);
  ScratchPieces pieces(scratch);
  Blocks x;
  x.width = PackedWidth(args.head_dim);
  x.scale = args.scale * kLog2E;
  x.dq = pieces.Take(packed * x.width);
  x.lse = pieces.Take(PackedWidth(packed));
  x.dots = pieces.Take(PackedWidth(packed));
  x.dk = pieces.Take(kKeyBlock * x.width);
  x.dv = pieces.Take(kKeyBlock * x.width);
  x.p = pieces.Take(kRowTile * kKeyBlock);
  x.ds = pieces.TakeWords(kRowTile * kKeyBlock / 2);
  x.p_pairs = pieces.TakeWords(kGradRows / 2 * kKeyBlock);
  x.ds_pairs = pieces.TakeWords(kGradRows / 2 * kKeyBlock);
  x.q_pairs = pieces.TakeWords(packed / 2 * x.width);
  x.dcontext_pairs = pieces.TakeWords(packed / 2 * x.width);
  x.k_pairs = pieces.TakeWords(kKeyBlock / 2 * x.width);
  x.k_columns = pieces.TakeWords(x.width / 2 * kKeyBlock);
  x.v_columns = pieces.TakeWords(x.width / 2 * kKeyBlock);
  x.q = pieces.TakeWords(packed * x.width / 2);
  x.dcontext = pieces.TakeWords(packed * x.width / 2);
  const bool one_block = args.group == 1 && args.tokens <= kQueryRows;
  float* totals = one_block ? nullptr : pieces.Take(2 * args.tokens * x.width);
  pieces.CheckWithin(AttendGradScratchBytes(args.tokens, args.head_dim, sizeof(uint16_t)));

  for (int64_t head = 0; head < args.group; ++head) {
    for (int64_t s0 = 0; s0 < args.tokens; s0 += kQueryRows) {
      DifferentiateQueries(args, head, s0, std::min(kQueryRows, args.tokens - s0), x, totals);
    }
  }
  if (totals != nullptr) {
    const int64_t n = args.tokens, c = args.head_dim;
    StoreRows(totals, n, x.width, 1.0f, c, args.dk, args.kv_stride);
    StoreRows(totals + n * x.width, n, x.width, 1.0f, c, args.dv, args.kv_stride);
  }
}

}  // namespace
}  // namespace attention_bf16
}  // namespace plumb

#pragma GCC pop_options

#endif  // PLUMB_ATTENTION_BF16

namespace plumb {

AttendGradFn<uint16_t> FindBf16AttendGrad() {
#if PLUMB_ATTENTION_BF16
  if (UsesBf16Pairs()) return attention_bf16::AttendGrad;
#endif
  return nullptr;
}

}  // namespace plumb
