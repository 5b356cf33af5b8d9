#include "runtime/ops/small_matmul.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/small_matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
static_assert(2 * kLanes <= 32, "SmallMatmulScratch assumes panels of at most 32 columns");

// Rows of a tile: two vectors of columns a row, a vector of b for each and one of a must fit the
// registers (32 with AVX-512, else 16).
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kMaxRows = 8;
#else
constexpr int64_t kMaxRows = 6;
#endif

// A tile of c: `rows` x (1 or 2 vectors). `ldb` is the distance between rows of b.
struct TileArgs {
  int64_t k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  const float* bias;
  float* c;
  int64_t ldc;
  int64_t last_columns;  // of the last vector
  bool accumulate;       // adds to c, instead of starting from bias
};
using TileFn = void (*)(const TileArgs& t);

template <int kRows, int kVectors, bool kTransposeA, bool kPartial>
void Tile(const TileArgs& t) {
  const D d;
  const Tail<D> tail(d, t.last_columns);
  const auto load = [&](const float* p, int v) HWY_ATTR {
    return kPartial && v == kVectors - 1 ? tail.Load(d, p) : hn::LoadU(d, p);
  };

  V sum[kRows][kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const V start = t.bias == nullptr ? hn::Zero(d) : load(t.bias + v * kLanes, v);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      sum[i][v] = t.accumulate ? load(t.c + i * t.ldc + v * kLanes, v) : start;
    }
  }

  const int64_t lda = t.lda, ldb = t.ldb;
  const float* a = t.a;
  const float* b = t.b;
  for (int64_t p = 0; p < t.k; ++p) {
    V row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes, v);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, kTransposeA ? a[i] : a[i * lda]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, row[v], sum[i][v]);
    }
    a += kTransposeA ? lda : 1;
    b += ldb;
  }

#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* c = t.c + i * t.ldc + v * kLanes;
      if (kPartial && v == kVectors - 1) {
        tail.Store(sum[i][v], d, c);
      } else {
        hn::StoreU(sum[i][v], d, c);
      }
    }
  }
}

template <bool kTransposeA, int kRows>
TileFn PickTile(int64_t vectors, bool partial) {
  if (vectors == 1) {
    return partial ? &Tile<kRows, 1, kTransposeA, true> : &Tile<kRows, 1, kTransposeA, false>;
  }
  return partial ? &Tile<kRows, 2, kTransposeA, true> : &Tile<kRows, 2, kTransposeA, false>;
}

template <bool kTransposeA>
TileFn PickTile(int64_t rows, int64_t vectors, bool partial) {
  switch (rows) {
    case 1:
      return PickTile<kTransposeA, 1>(vectors, partial);
    case 2:
      return PickTile<kTransposeA, 2>(vectors, partial);
    case 3:
      return PickTile<kTransposeA, 3>(vectors, partial);
    case 4:
      return PickTile<kTransposeA, 4>(vectors, partial);
    case 5:
      return PickTile<kTransposeA, 5>(vectors, partial);
#if HWY_TARGET == HWY_AVX3
    case 6:
      return PickTile<kTransposeA, 6>(vectors, partial);
    case 7:
      return PickTile<kTransposeA, 7>(vectors, partial);
    default:
      return PickTile<kTransposeA, 8>(vectors, partial);
#else
    default:
      return PickTile<kTransposeA, 6>(vectors, partial);
#endif
  }
}

#if HWY_TARGET == HWY_SCALAR

void PackTransposed(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width,
                    float* packed) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) packed[p * width + j] = b[j * ldb + p];
  }
}

#else

// Groups of four elements: group g is read from p + 4 * g * stride.
template <class DB>
HWY_INLINE hn::Vec<DB> LoadGroups(DB d, const float* p, int64_t stride) {
  if constexpr (hn::MaxLanes(DB()) == 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<DB> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups(half, p + kHalf * stride, stride),
                       LoadGroups(half, p, stride));
  }
}

// The same with group g read from rows[4 * g] + p.
template <class DB>
HWY_INLINE hn::Vec<DB> LoadGroups(DB d, const float* const* rows, int64_t p) {
  if constexpr (hn::MaxLanes(DB()) == 4) {
    return hn::LoadU(d, rows[0] + p);
  } else {
    const hn::Half<DB> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, LoadGroups(half, rows + kHalf, p), LoadGroups(half, rows, p));
  }
}

// Turns four vectors of 4-element groups (group g of r[i]: elements p..p+3 of row 4g+i) into the
// columns p..p+3 of one vector of rows.
HWY_INLINE void StoreTransposed(const V r0, const V r1, const V r2, const V r3, int64_t width,
                                float* to) {
  const D d;
  const hn::Repartition<double, D> d64;
  const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t0, t1)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1)), d, to + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t2, t3)), d, to + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3)), d, to + 3 * width);
}

// packed[p * width + j] = b[j * ldb + p] for j < n, p < k; `width` is n rounded up to whole
// vectors. Columns beyond n hold copies of the last: products read them and drop the result.
void PackTransposed(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width,
                    float* packed) {
  if (k < 4) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < width; ++j) packed[p * width + j] = b[std::min(j, n - 1) * ldb + p];
    }
    return;
  }
  const D d;
  for (int64_t j = 0; j < width; j += kLanes) {
    // The last four columns of b may overlap the four before; they are then written twice, alike.
    if (n - j >= kLanes) {
      const float* rows = b + j * ldb;
      for (int64_t next = 0; next < k; next += 4) {
        const int64_t p = std::min(next, k - 4);
        StoreTransposed(LoadGroups(d, rows + p, ldb), LoadGroups(d, rows + ldb + p, ldb),
                        LoadGroups(d, rows + 2 * ldb + p, ldb),
                        LoadGroups(d, rows + 3 * ldb + p, ldb), width, packed + p * width + j);
      }
    } else {
      const float* rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) rows[i] = b + std::min(j + i, n - 1) * ldb;
      for (int64_t next = 0; next < k; next += 4) {
        const int64_t p = std::min(next, k - 4);
        StoreTransposed(LoadGroups(d, rows, p), LoadGroups(d, rows + 1, p),
                        LoadGroups(d, rows + 2, p), LoadGroups(d, rows + 3, p), width,
                        packed + p * width + j);
      }
    }
  }
}

#endif

// packed[p * width + j] = b[p * ldb + j] for j < n, p < k; `width` is n rounded up to whole
// vectors.
void PackPlain(const float* b, int64_t ldb, int64_t n, int64_t k, int64_t width, float* packed) {
  const D d;
  const int64_t whole = n / kLanes * kLanes;
  const Tail<D> tail(d, whole < n ? n - whole : 1);
  for (int64_t p = 0; p < k; ++p, b += ldb, packed += width) {
    for (int64_t j = 0; j < whole; j += kLanes) hn::StoreU(hn::LoadU(d, b + j), d, packed + j);
    if (whole < n) hn::StoreU(tail.Load(d, b + whole), d, packed + whole);
  }
}

// Terms [p0, p0 + k) of every sum.
template <bool kTransposeA, bool kTransposeB>
void AddTerms(const SmallMatmulArgs& g, int64_t p0, int64_t k, float* scratch) {
  const float* a = g.a + (kTransposeA ? p0 * g.lda : p0);
  const float* b = g.b + (kTransposeB ? p0 : p0 * g.ldb);
  // Rows in blocks of nearly equal height: 9 rows are better as 5 + 4 than as 8 + 1.
  const int64_t blocks = (g.m + kMaxRows - 1) / kMaxRows;
  const int64_t height = blocks == 1 ? g.m : g.m / blocks;
  const int64_t taller = g.m - height * blocks;  // this many blocks have one row more

  // Rows of b that are far apart fall into few sets of the cache; many tiles are worth a copy.
  const bool copy = !kTransposeB && g.ldb >= 256 && g.m >= 32;

  for (int64_t j = 0; j < g.n; j += 2 * kLanes) {
    const int64_t columns = std::min(g.n - j, 2 * kLanes);
    const int64_t vectors = columns > kLanes ? 2 : 1;

    TileArgs t;
    t.k = k;
    t.lda = g.lda;
    t.ldc = g.ldc;
    t.last_columns = columns - (vectors - 1) * kLanes;
    t.bias = g.bias == nullptr ? nullptr : g.bias + j;
    t.accumulate = p0 > 0;
    if (kTransposeB || copy) {
      t.ldb = vectors * kLanes;
      if (kTransposeB) {
        PackTransposed(b + j * g.ldb, g.ldb, columns, k, t.ldb, scratch);
      } else {
        PackPlain(b + j, g.ldb, columns, k, t.ldb, scratch);
      }
      t.b = scratch;
    } else {
      t.ldb = g.ldb;
      t.b = b + j;
    }
    const bool partial = t.last_columns != kLanes;
    const TileFn tile = PickTile<kTransposeA>(height, vectors, partial);
    const TileFn tall = taller == 0 ? tile : PickTile<kTransposeA>(height + 1, vectors, partial);
    for (int64_t block = 0, i = 0; block < blocks; ++block) {
      t.a = a + (kTransposeA ? i : i * g.lda);
      t.c = g.c + i * g.ldc + j;
      (block < taller ? tall : tile)(t);
      i += block < taller ? height + 1 : height;
    }
  }
}

template <bool kTransposeA, bool kTransposeB>
void SmallMatmul(const SmallMatmulArgs& g, float* scratch) {
  if (g.k <= kMaxSmallMatmulTerms) return AddTerms<kTransposeA, kTransposeB>(g, 0, g.k, scratch);
  // Equal parts, so that a panel of b and the rows of a stay in the caches.
  const int64_t parts = (g.k + kMaxSmallMatmulTerms - 1) / kMaxSmallMatmulTerms;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = g.k * i / parts, end = g.k * (i + 1) / parts;
    AddTerms<kTransposeA, kTransposeB>(g, begin, end - begin, scratch);
  }
}

SmallMatmulFn Select(bool transpose_a, bool transpose_b) {
  if (transpose_a) return transpose_b ? &SmallMatmul<true, true> : &SmallMatmul<true, false>;
  return transpose_b ? &SmallMatmul<false, true> : &SmallMatmul<false, false>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

SmallMatmulFn SelectSmallMatmul(bool transpose_a, bool transpose_b) {
  return HWY_DYNAMIC_DISPATCH(Select)(transpose_a, transpose_b);
}

}  // namespace plumb
#endif  // HWY_ONCE
