// The kernels of blocked products of bf16 operands where the processor multiplies bf16 pairs
// (AVX512_BF16): written with its own instructions, which Highway does not have, and called only
// where they exist. A lane of a sum takes two terms an instruction, in f32; denormal operands and
// sums count as zero there.
#include "runtime/base/divide.h"
#include "runtime/kernels/gemm/matmul_kernels.h"

#if defined(__x86_64__)
// gcc 12's own header leaves a register undefined on purpose, and warns of it where it is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace plumb {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPanel = 2 * kLanes;
constexpr int64_t kMaxTileRows = 14;

__mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
}

struct TileArgs {
  int64_t units;
  const float* a;
  int64_t lda;  // units
  const float* b;
  int64_t ldb;
  const float* start;
  float* c;
  int64_t ldc;
  __mmask16 last;     // columns of the last vector
  const float* from;  // what sums begin from, rows ldc apart; null: start
  // kTiled only. Not null: b is not packed yet. Its rows begin here, ld_rows apart; they are asked
  // for ahead of their use, and left in `packs`, units ldb apart.
  const uint16_t* rows = nullptr;
  int64_t ld_rows = 0;
  float* packs = nullptr;
  // kAsks: each kAskUnits units, `lines` are asked for.
  RowsToCome* to_come = nullptr;
  int64_t lines = 0;
};
using TileFn = void (*)(const TileArgs& t);

inline __m512bh Pairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// The pairs from[j], below[j]; `below` is null for the zeros that fill up a pair. Lanes off in
// `mask` are not read, and zero.
inline __m512i LoadPairs(const uint16_t* from, const uint16_t* below, __mmask16 mask) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  const __m512i high = below == nullptr
                           ? _mm512_setzero_si512()
                           : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, below));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// rows x (1 or 2 vectors) of c; a in rows of lda units, or tiled: [units][kRows]. kAsks: for what
// is to come.
template <int kRows, int kVectors, bool kTiled, bool kAsks>
void Tile(const TileArgs& t) {
  const __mmask16 all = 0xffff;
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __mmask16 mask = v == kVectors - 1 ? t.last : all;
    const __m512 start = t.start == nullptr ? _mm512_setzero_ps()
                                            : _mm512_maskz_loadu_ps(mask, t.start + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      sum[i][v] =
          t.from == nullptr ? start : _mm512_maskz_loadu_ps(mask, t.from + i * t.ldc + v * kLanes);
    }
  }

  // Rows are reached from one pointer in four, which the addressing modes can do.
  constexpr int kPointers = kTiled ? 1 : CeilDiv(kRows, 4);
  const int64_t lda = t.lda, ldb = t.ldb;
  const float* a[kPointers];
  for (int i = 0; i < kPointers; ++i) a[i] = t.a + 4 * i * lda;
  const float* b = t.b;
  const uint16_t* rows = t.rows;
  float* packs = t.packs;
  int64_t p = 0;
  do {
    if (kAsks) t.to_come->Ask(t.lines);
    for (const int64_t end = kAsks ? std::min(t.units, p + kAskUnits) : t.units; p < end; ++p) {
      __m512bh column[kVectors];
      if (kTiled && packs != nullptr) {
        AskForRow(rows + kRowsAhead * t.ld_rows, kVectors * kLanes * 2);
        AskForRow(rows + (kRowsAhead + 1) * t.ld_rows, kVectors * kLanes * 2);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const __mmask16 mask = v == kVectors - 1 ? t.last : all;
          const __m512i pairs = LoadPairs(rows + v * kLanes, rows + v * kLanes + t.ld_rows, mask);
          _mm512_mask_storeu_epi32(packs + v * kLanes, mask, pairs);
          column[v] = Pairs(pairs);
        }
        rows += 2 * t.ld_rows;
        packs += ldb;
      } else {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) column[v] = Pairs(_mm512_loadu_si512(b + v * kLanes));
        b += ldb;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        std::memcpy(&pair, kTiled ? a[0] + i : a[i / 4 % kPointers] + i % 4 * lda, sizeof(pair));
        const __m512bh x = Pairs(_mm512_set1_epi32(pair));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], x, column[v]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kPointers; ++i) a[i] += kTiled ? kRows : 1;
    }
  } while (kAsks && p < t.units);

#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(t.c + i * t.ldc + v * kLanes, v == kVectors - 1 ? t.last : all,
                            sum[i][v]);
    }
  }
}

template <bool kTiled, int kRows = kMaxTileRows>
TileFn PickTile(int64_t rows, int64_t vectors, bool asks) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return PickTile<kTiled, kRows - 1>(rows, vectors, asks);
  }
  if (vectors == 1) return &Tile<kRows, 1, kTiled, false>;
  return asks ? &Tile<kRows, 2, kTiled, true> : &Tile<kRows, 2, kTiled, false>;
}

void Multiply(const PanelArgs& g) {
  const TileRows split(g.rows, kMaxTileRows);
  const int64_t vectors = g.columns > kLanes ? 2 : 1;
  TileArgs t;
  t.units = g.units;
  t.lda = g.lda;
  t.b = g.b;
  t.ldb = g.width;
  t.start = g.start;
  t.ldc = g.ldc;
  t.last = FirstLanes(g.columns - (vectors - 1) * kLanes);
  t.rows = static_cast<const uint16_t*>(g.b_rows);
  t.ld_rows = g.ld_rows;
  t.packs = g.b_rows == nullptr ? nullptr : g.packs;
  t.to_come = g.to_come;
  t.lines = LinesAStretch(g, split.tiles);
  const bool asks = g.to_come != nullptr;
  const auto pick = [&](int64_t height) {
    return g.tiled ? PickTile<true>(height, vectors, asks) : PickTile<false>(height, vectors, asks);
  };
  const TileFn tile = pick(split.height);
  const TileFn tall = split.taller == 0 ? tile : pick(split.height + 1);
  for (int64_t i = 0, row = 0; i < split.tiles; ++i) {
    t.a = g.a + row * (g.tiled ? g.units : g.lda);
    t.c = g.c + row * g.ldc;
    t.from = g.from == nullptr ? nullptr : g.from + row * g.ldc;
    AskForSums(g, row, split.HeightOf(i), i + 1 < split.tiles ? split.HeightOf(i + 1) : 0);
    (i < split.taller ? tall : tile)(t);
    if (t.packs != nullptr) t.b = std::exchange(t.packs, nullptr);
    row += split.HeightOf(i);
  }
}

const uint16_t* Elements(const PackArgs& p, int64_t row, int64_t column) {
  return static_cast<const uint16_t*>(p.from) + row * p.ld + column;
}

// Rows as they are; only needed for odd sums.
void PackA(const PackArgs& p) {
  const int64_t units = CeilDiv(p.terms, 2);
  for (int64_t i = 0; i < p.count; ++i) {
    float* to = p.to + i * units;
    to[units - 1] = 0;
    std::memcpy(to, Elements(p, p.first + i, p.k0), static_cast<size_t>(p.terms) * 2);
  }
}

void StorePairs(const uint16_t* from, const uint16_t* below, __mmask16 mask, float* to) {
  _mm512_mask_storeu_epi32(to, mask, LoadPairs(from, below, mask));
}

// The rows that will be packed some time after this pair.
[[gnu::always_inline]] inline void AskForPair(const PackArgs& p, const uint16_t* from) {
  const int64_t bytes = p.count * static_cast<int64_t>(sizeof(uint16_t));
  AskForRow(from + kRowsAhead * p.ld, bytes);
  AskForRow(from + (kRowsAhead + 1) * p.ld, bytes);
}

// Rows of the transposed matrix two by two; all tiles together take whole lines of them.
void PackATransposed(const PackArgs& p) {
  const TileRows split(p.count, kMaxTileRows);
  const int64_t units = CeilDiv(p.terms, 2);
  for (int64_t u = 0; u < units; ++u) {
    const uint16_t* from = Elements(p, p.k0 + 2 * u, p.first);
    const bool whole = 2 * u + 1 < p.terms;
    AskForPair(p, from);
    for (int64_t i = 0, row = 0; i < split.tiles; ++i) {
      const int64_t height = split.HeightOf(i);
      StorePairs(from + row, whole ? from + row + p.ld : nullptr, FirstLanes(height),
                 p.to + row * units + u * height);
      row += height;
    }
  }
}

void PackB(const PackArgs& p) {
  const int64_t units = CeilDiv(p.terms, 2);
  for (int64_t u = 0; u < units; ++u) {
    const uint16_t* from = Elements(p, p.k0 + 2 * u, p.first);
    const bool whole = 2 * u + 1 < p.terms;
    if (p.asks) AskForPair(p, from);
    for (int64_t j = 0; j < p.count; j += kLanes) {
      StorePairs(from + j, whole ? from + j + p.ld : nullptr, FirstLanes(p.count - j),
                 p.to + u * p.width + j);
    }
  }
}

// Transposes 16 x 16 units; row i of the result is to + i * width, for the first `rows` of them.
inline void StoreTransposed(const __m512i (&in)[16], int64_t rows, int64_t width, float* to) {
  __m512i s[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
  }
  // t[4g + c]: in each 128-bit lane l, unit 4l + c of rows 4g .. 4g + 3.
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    t[g] = _mm512_unpacklo_epi64(s[g], s[g + 2]);
    t[g + 1] = _mm512_unpackhi_epi64(s[g], s[g + 2]);
    t[g + 2] = _mm512_unpacklo_epi64(s[g + 1], s[g + 3]);
    t[g + 3] = _mm512_unpackhi_epi64(s[g + 1], s[g + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x88);  // lanes 0, 2
    const __m512i low23 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xdd);  // lanes 1, 3
    const __m512i high23 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xdd);
    s[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    s[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    s[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    s[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
  if (rows >= 16) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * width, s[i]);
  } else {
    for (int64_t i = 0; i < rows; ++i) _mm512_storeu_si512(to + i * width, s[i]);
  }
}

void PackBTransposed(const PackArgs& p) {
  for (int64_t j = 0; j < p.count; j += kLanes) {
    const int64_t columns = std::min(kLanes, p.count - j);
    RowsToCome to_come;
    if (p.asks) {
      to_come = RowsToCome(Elements(p, p.first + j + kLanes, p.k0), p.ld * 2, p.terms * 2);
    }
    for (int64_t k = 0; k < p.terms; k += 2 * kLanes) {
      to_come.Ask(kLanes);  // as many lines as are read here
      // Rows that there are not, and terms beyond the last, come out as zero.
      const int64_t terms = std::min(2 * kLanes, p.terms - k);
      const __mmask32 mask = terms == 2 * kLanes ? ~__mmask32{0} : (__mmask32{1} << terms) - 1;
      __m512i rows[16];
      const uint16_t* from = Elements(p, p.first + j, p.k0 + k);
      if (columns == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) rows[i] = _mm512_maskz_loadu_epi16(mask, from + i * p.ld);
      } else {
        for (int64_t i = 0; i < 16; ++i) {
          rows[i] = i < columns ? _mm512_maskz_loadu_epi16(mask, from + i * p.ld)
                                : _mm512_setzero_si512();
        }
      }
      StoreTransposed(rows, CeilDiv(terms, 2), p.width, p.to + k / 2 * p.width + j);
    }
  }
}

}  // namespace

MatmulKernels FastBf16MatmulKernels() {
  MatmulKernels kernels{};
  kernels.unit_terms = 2;
  kernels.tile_rows = kMaxTileRows;
  kernels.panel = kPanel;
  kernels.lanes = kLanes;
  kernels.a_in_place = kernels.packs_b = true;
  kernels.pack_a = &PackA;
  kernels.pack_a_transposed = &PackATransposed;
  kernels.pack_b = &PackB;
  kernels.pack_b_transposed = &PackBTransposed;
  kernels.multiply = &Multiply;
  return kernels;
}

}  // namespace plumb

#pragma GCC pop_options

#else

#include "runtime/base/check.h"

namespace plumb {
MatmulKernels FastBf16MatmulKernels() {
  PLUMB_CHECK(false, "HasFastBf16() says where these exist");
  return {};
}
}  // namespace plumb

#endif
