// SPDX-License-Identifier: Apache-2.0
// Backward kernel of attention: Dao et al., "FlashAttention" (2022), algorithm 4, for one head of
// keys and values and the query heads that share it. With p_ij = exp(s_ij - lse_i):
//   dv_j = sum_i p_ij dcontext_i
//   ds_ij = p_ij (dcontext_i . v_j - D_i),  D_i = dcontext_i . context_i
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i
//   dkey_bias_j = sum_i ds_ij
// s_ij is the score after the variant's changes; if scores are capped, ds is multiplied by
// 1 - tanh^2, and there are no biases of keys. E is the operand format of the products; kPlain is
// true for a plain softmax.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/base/divide.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/attention/backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/attention/tiles-inl.h"
#include "runtime/kernels/simd/exp-inl.h"
#include "runtime/kernels/simd/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// Scratch. f32 sums are [rows][width]. Packed elements "by query" hold consecutive terms of sums
// over queries, those "by key" of sums over keys; with one term per element they are the same.
template <class E>
struct Blocks {
  using Packed = typename E::Packed;
  int64_t width;
  float scale;           // scale of the scores, over log 2; with a cap, of tanh's argument
  float cap;             // over log 2; 0: none
  float distance_slope;  // over log 2, for the current head; 0: none
  int64_t window;        // ignored if the softmax is plain
  // Up to kQueryRows queries of one head, packed as left and as right operands:
  Packed *q_left, *q_right;
  Packed *dcontext_left, *dcontext_right;
  float* dq;    // without scale
  float* lse;   // in units of log 2
  float* dots;  // D
  // With biases of keys, else null:
  float* own_bias;              // of the queries' own keys
  float *key_bias, *dkey_bias;  // [kKeyBlock], of a block of keys
  // A block of keys:
  Packed* k_right;
  Packed *k_transposed, *v_transposed;  // [head_dim / kTerms][kKeyBlock]
  float *dk, *dv;                       // sums over these queries, dk without scale
  // kGradRows queries by a block of keys: [kGradRows / kTerms][kKeyBlock]
  Packed *p_by_query, *ds_by_query;
  // A tile of queries by a block of keys, if the formats by query and by key differ:
  float* p_tile;    // [kRowTile][kKeyBlock]
  Packed* ds_tile;  // [kRowTile][kKeyBlock / kTerms] by key
  // Derivatives of the cap for a tile, if scores are capped: [kRowTile][kKeyBlock]
  float* slopes;
  // Sums over all queries, if the tensors' format is too coarse to accumulate in; else null.
  float *dk_total, *dv_total;
};

// Returns true if one block has all queries and keys, so that sums are final and stored directly.
template <class T>
bool IsOneBlock(const AttendGradArgs<T>& args) {
  return args.group == 1 && args.tokens <= kGradRows;
}
// Returns true if dk and dv are sums over several blocks of queries in a format coarser than f32.
template <class T>
bool NeedsTotals(const AttendGradArgs<T>& args) {
  return sizeof(T) < sizeof(float) && (args.group > 1 || args.tokens > kQueryRows);
}

// Returns the partial sums of a . b in the lanes of a vector.
template <class T>
HWY_INLINE Vf Dot(const T* a, const T* b, int64_t last, const FloatTail<Df>& tail) {
  const Df d;
  Vf sum = hn::Mul(tail.Load(d, a + last), tail.Load(d, b + last));
  for (int64_t e = 0; e < last; e += LaneCount()) {
    sum = hn::MulAdd(LoadFloats(d, a + e), LoadFloats(d, b + e), sum);
  }
  return sum;
}

// Keeps, in row r of a tile, the keys before min(n_keys, extent + r), and with a window those from
// extent + r - window on; others become 0. It selects instead of multiplying, since the masked
// lanes may hold anything, even NaN. kWhole is true if there are no masked lanes.
template <bool kWhole, bool kPlain>
struct CausalMask {
  int64_t n_keys;
  int64_t extent;
  int64_t window;
  HWY_INLINE Vf operator()(int64_t r, int64_t v, Vf y) const {
    if constexpr (kWhole) return y;
    const Df d;
    if constexpr (!kPlain) {
      const int64_t end = extent + r;
      return hn::IfThenElseZero(KeysWithin(end - window, std::min(n_keys, end), v * LaneCount()),
                                y);
    }
    const int64_t lanes = LaneCount(), count = std::min(n_keys, extent + r) - v * lanes;
    const int64_t seen = std::max<int64_t>(0, std::min(lanes, count));
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(seen)), y);
  }
};

// Destinations of p and ds of a tile.
template <class E>
struct TileGradient {
  float* p;
  typename E::Packed *p_by_query, *ds_by_query, *ds_by_key;

  // For the tile at row r0 of the block.
  TileGradient(const Blocks<E>& x, int64_t r0)
      : p(x.p_tile),
        p_by_query(x.p_by_query + r0 / E::kTerms * kKeyBlock),
        ds_by_query(x.ds_by_query + r0 / E::kTerms * kKeyBlock),
        ds_by_key(x.ds_tile) {
    if constexpr (E::kTerms == 1) {
      p = p_by_query;
      ds_by_key = ds_by_query;
    }
  }
};

// Computes p and ds of the tile of packed queries at i against n_keys keys, of which the first
// query attends to those before `extent`.
template <class E, bool kWhole, bool kPlain>
HWY_NOINLINE void DifferentiateTile(int64_t i, int64_t head_dim, int64_t vectors, int64_t n_keys,
                                    int64_t extent, const Blocks<E>& x, const TileGradient<E>& to) {
  const Df d;
  const CausalMask<kWhole, kPlain> mask{n_keys, extent, x.window};
  const hn::Rebind<typename E::Packed, Df> packed;
  constexpr int64_t kTerms = E::kTerms;
  const int64_t lanes = LaneCount(), stride = x.width / kTerms, depth = CeilDiv(head_dim, kTerms);
  const float* lse = x.lse + i;
  const float* dots = x.dots + i;
  const Vf scale = hn::Set(d, x.scale);
  MultiplyRows<E>(
      {x.q_left + i * stride, stride, 1}, x.k_transposed, kKeyBlock, depth, vectors,
      FromZero(), [&](auto& tile, int64_t v0) HWY_ATTR __attribute__((always_inline)) {
        constexpr int64_t kVectors = std::remove_reference_t<decltype(tile)>::kVectorCount;
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRowTile; r += kTerms) {
#pragma GCC unroll 2
          for (int64_t v = 0; v < kVectors; ++v) {
            const int64_t at = (v0 + v) * lanes;
            Vf p[kTerms];
#pragma GCC unroll 2
            for (int64_t t = 0; t < kTerms; ++t) {
              Vf score;
              if (kPlain || x.cap == 0) {
                score = hn::MulSub(tile.acc[r + t][v], scale, hn::Set(d, lse[r + t]));
              } else {
                Vf slope;
                Tanh::Both(d, hn::Mul(tile.acc[r + t][v], scale), &score, &slope);
                hn::Store(slope, d, x.slopes + (r + t) * kKeyBlock + at);
                score = hn::MulSub(score, hn::Set(d, x.cap), hn::Set(d, lse[r + t]));
              }
              if (!kPlain && x.distance_slope != 0) {
                score = hn::Add(score, DistanceBias(x.distance_slope, mask.extent - 1 + r + t, at));
              }
              if (!kPlain && x.key_bias != nullptr) {
                score = AddKeyBias(score, x.key_bias + at, x.own_bias[i + r + t]);
              }
              p[t] = mask(r + t, v0 + v, FastExp2(d, score));
              if (kTerms > 1) hn::Store(p[t], d, to.p + (r + t) * kKeyBlock + at);
            }
            hn::Store(E::Across(p), packed, to.p_by_query + r / kTerms * kKeyBlock + at);
          }
        }
      });
  MultiplyRows<E>(
      {x.dcontext_left + i * stride, stride, 1}, x.v_transposed, kKeyBlock, depth, vectors,
      FromZero(), [&](auto& tile, int64_t v0) HWY_ATTR __attribute__((always_inline)) {
        constexpr int64_t kVectors = std::remove_reference_t<decltype(tile)>::kVectorCount;
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRowTile; r += kTerms) {
          Vf ds[kTerms][2];
#pragma GCC unroll 2
          for (int64_t v = 0; v < kVectors; ++v) {
            const int64_t at = (v0 + v) * lanes;
            Vf column[kTerms], sum = hn::Zero(d);
#pragma GCC unroll 2
            for (int64_t t = 0; t < kTerms; ++t) {
              Vf dp = hn::Sub(tile.acc[r + t][v], hn::Set(d, dots[r + t]));
              if (!kPlain && x.cap != 0) {
                dp = hn::Mul(dp, hn::Load(d, x.slopes + (r + t) * kKeyBlock + at));
              }
              const Vf p = hn::Load(d, to.p + (r + t) * kKeyBlock + at);
              column[t] = ds[t][v] = mask(r + t, v0 + v, hn::Mul(p, dp));
              sum = hn::Add(sum, column[t]);
            }
            if (!kPlain && x.key_bias != nullptr) {
              hn::Store(hn::Add(sum, hn::Load(d, x.dkey_bias + at)), d, x.dkey_bias + at);
            }
            hn::Store(E::Across(column), packed, to.ds_by_query + r / kTerms * kKeyBlock + at);
          }
          if constexpr (kTerms > 1) {
#pragma GCC unroll 2
            for (int64_t t = 0; t < kTerms; ++t) {
              if (kVectors == 1) ds[t][1] = hn::Zero(d);
              hn::Store(E::Along(ds[t]), packed,
                        to.ds_by_key + ((r + t) * kKeyBlock + v0 * lanes) / kTerms);
            }
          }
        }
      });
}

// Adds the contributions of packed queries [i0, +rows) and a block of keys to dq, dk and dv. Query
// i attends to key j if i + diagonal - window < j <= i + diagonal. kOneBlock is IsOneBlock(args).
template <class E, bool kOneBlock>
void DifferentiateBlock(const AttendGradArgs<typename E::Tensor>& args, int64_t i0, int64_t rows,
                        int64_t n_keys, int64_t diagonal, bool plain, const Blocks<E>& x) {
  using Left = LeftOperand<typename E::Packed>;
  constexpr int64_t kTerms = E::kTerms;
  const int64_t c = args.head_dim;
  const int64_t channels = VectorCount(c);
  const auto causal_extent = [&](int64_t i) { return std::min(n_keys, i + diagonal + 1); };
  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    const int64_t i = i0 + r0;
    const int64_t extent = causal_extent(i + kRowTile - 1);
    // Tiles of keys below read whole tiles of columns.
    const int64_t vectors = VectorCount(RoundUp(extent, kRowTile));
    const TileGradient<E> tile(x, r0);
    const int64_t end = i + diagonal + 1;  // end of the keys of the first row
    const bool whole =
        causal_extent(i) >= vectors * LaneCount() && (plain || end + kRowTile - 1 <= x.window);
    const auto differentiate =
        plain ? (whole ? DifferentiateTile<E, true, true> : DifferentiateTile<E, false, true>)
              : (whole ? DifferentiateTile<E, true, false> : DifferentiateTile<E, false, false>);
    differentiate(i, c, vectors, n_keys, end, x, tile);
    const Left ds = {tile.ds_by_key, kKeyBlock / kTerms, 1};
    const int64_t depth = CeilDiv(extent, kTerms);
    if constexpr (kOneBlock) {
      const ToRows<E> to_dq(args.dq + i * args.q_stride, args.q_stride, rows - r0, c, &args.scale,
                            0);
      MultiplyRows<E>(ds, x.k_right, x.width, depth, channels, FromZero(), to_dq);
    } else {
      float* dq = x.dq + i * x.width;
      MultiplyRows<E>(ds, x.k_right, x.width, depth, channels, FromMemory{dq, x.width},
                      ToMemory{dq, x.width});
    }
  }

  const int64_t extent = causal_extent(i0 + rows - 1);
  for (int64_t g = 0; g < extent; g += kRowTile) {
    // The tile with the first query that attends to key g, which has set all columns of this tile.
    const int64_t from = std::max<int64_t>(0, g - diagonal - i0) / kRowTile * kRowTile;
    const int64_t left = from / kTerms * kKeyBlock + g, right = (i0 + from) / kTerms * x.width;
    const Left p = {x.p_by_query + left, 1, kKeyBlock}, ds = {x.ds_by_query + left, 1, kKeyBlock};
    const int64_t depth = CeilDiv(rows - from, kTerms);
    if constexpr (kOneBlock) {
      const float one = 1.0f;
      const int64_t stride = args.kv_stride, at = g * stride;
      const ToRows<E> to_dv(args.dv + at, stride, n_keys - g, c, &one, 0);
      MultiplyRows<E>(p, x.dcontext_right + right, x.width, depth, channels, FromZero(), to_dv);
      const ToRows<E> to_dk(args.dk + at, stride, n_keys - g, c, &args.scale, 0);
      MultiplyRows<E>(ds, x.q_right + right, x.width, depth, channels, FromZero(), to_dk);
    } else {
      float *dv = x.dv + g * x.width, *dk = x.dk + g * x.width;
      MultiplyRows<E>(p, x.dcontext_right + right, x.width, depth, channels,
                      FromMemory{dv, x.width}, ToMemory{dv, x.width});
      MultiplyRows<E>(ds, x.q_right + right, x.width, depth, channels, FromMemory{dk, x.width},
                      ToMemory{dk, x.width});
    }
  }
}

// Packs queries [s0, +rows) of one head, with their lse and D.
template <class E>
void PackQueries(const AttendGradArgs<typename E::Tensor>& args, int64_t head, int64_t s0,
                 int64_t rows, const Blocks<E>& x) {
  const Df d;
  const int64_t c = args.head_dim, stride = args.q_stride;
  const int64_t start = s0 * stride + head * c;
  PackLeft<E>(args.q + start, stride, rows, c, x.q_left, x.width);
  PackLeft<E>(args.dcontext + start, stride, rows, c, x.dcontext_left, x.width);
  if constexpr (E::kTerms > 1) {
    PackRight<E>(args.q + start, stride, rows, c, x.q_right, x.width);
    PackRight<E>(args.dcontext + start, stride, rows, c, x.dcontext_right, x.width);
  }
  const int64_t padded = RoundUp(rows, kRowTile);
  if (x.key_bias != nullptr) {
    // Rows that are padding have no weights, so that they add nothing to the biases' gradient.
    std::fill_n(x.own_bias, padded, std::numeric_limits<float>::infinity());
    args.variant.CopyKeyBias(head, s0, rows, x.own_bias);
  }
  std::copy_n(args.lse + head * args.tokens + s0, rows, x.lse);
  std::fill(x.lse + rows, x.lse + padded, 0.0f);
  for (int64_t r = 0; r < padded; r += LaneCount()) {
    hn::Store(hn::Mul(hn::Load(d, x.lse + r), hn::Set(d, kLog2E)), d, x.lse + r);
  }
  const int64_t last = (VectorCount(c) - 1) * LaneCount();
  const FloatTail<Df> tail(d, c - last);
  // If there are fewer than four rows, the last one repeats.
  const auto dot = [&](int64_t r) HWY_ATTR {
    const int64_t at = start + std::min(r, rows - 1) * stride;
    return Dot(args.dcontext + at, args.context + at, last, tail);
  };
  for (int64_t r = 0; r < padded; r += 4) {
    FoldLanes(d, dot(r), dot(r + 1), dot(r + 2), dot(r + 3), Sum(), x.dots + r);
  }
}

// Processes queries [s0, +rows) of one head against all of their keys.
template <class E>
void DifferentiateQueries(const AttendGradArgs<typename E::Tensor>& args, int64_t head, int64_t s0,
                          int64_t rows, bool plain, const Blocks<E>& x) {
  using Output = typename E::Output;
  const int64_t c = args.head_dim, stride = args.kv_stride;
  PackQueries(args, head, s0, rows, x);
  if (!IsOneBlock(args)) ZeroRows(x.dq, RoundUp(rows, kRowTile), x.width);

  const auto [offset, keys] = ComputeCausalExtent(s0, rows, args.keys, args.variant.window);
  const int64_t first_key = plain ? 0 : FirstKeyBlock(offset, x.window);
  for (int64_t j0 = first_key; j0 < keys; j0 += kKeyBlock) {
    // The first block of queries with some of these keys sets the sums of all of them.
    const int64_t n_keys = std::min(kKeyBlock, std::max(keys, args.keys) - j0);
    PackRight<E>(args.k + j0 * stride, stride, n_keys, c, x.k_right, x.width);
    PackTransposed<E>(args.k + j0 * stride, stride, n_keys, c, x.k_transposed);
    PackTransposed<E>(args.v + j0 * stride, stride, n_keys, c, x.v_transposed);
    if (x.key_bias != nullptr) {
      args.variant.CopyKeyBias(head, j0, n_keys, x.key_bias);
      std::fill_n(x.dkey_bias, kKeyBlock, 0.0f);
    }
    const auto add_to_biases = [&] {
      for (int64_t j = 0; x.key_bias != nullptr && j < n_keys; ++j) {
        args.dkey_bias[(j0 + j) * args.variant.key_bias_stride + head] += x.dkey_bias[j];
      }
    };
    if (IsOneBlock(args)) {
      DifferentiateBlock<E, true>(args, 0, rows, n_keys, offset, plain, x);
      add_to_biases();
      return;
    }
    ZeroRows(x.dk, RoundUp(n_keys, kRowTile), x.width);
    ZeroRows(x.dv, RoundUp(n_keys, kRowTile), x.width);

    const int64_t from = std::max<int64_t>(0, j0 - offset) / kRowTile * kRowTile;
    // First tile whose windows are entirely after these keys.
    const int64_t end =
        plain ? rows : std::min(rows, RoundUp(j0 + n_keys - offset + x.window - 1, kRowTile));
    for (int64_t i0 = from; i0 < end; i0 += kGradRows) {
      DifferentiateBlock<E, false>(args, i0, std::min(kGradRows, end - i0), n_keys, offset - j0,
                                   plain, x);
    }
    add_to_biases();

    const int64_t ahead = offset - s0;
    const bool add = head > 0 || s0 > std::max<int64_t>(0, j0 - ahead) / kQueryRows * kQueryRows;
    const auto add_to = [&](auto* dk, auto* dv, int64_t to_stride) {
      Unpack(x.dk, n_keys, x.width, args.scale, c, add, dk + j0 * to_stride, to_stride);
      Unpack(x.dv, n_keys, x.width, 1.0f, c, add, dv + j0 * to_stride, to_stride);
    };
    if (x.dk_total != nullptr) {
      add_to(x.dk_total, x.dv_total, x.width);
    } else {
      add_to(reinterpret_cast<Output*>(args.dk), reinterpret_cast<Output*>(args.dv), stride);
    }
  }
  Output* dq = reinterpret_cast<Output*>(args.dq + s0 * args.q_stride + head * c);
  Unpack(x.dq, rows, x.width, args.scale, c, false, dq, args.q_stride);
}

template <class E>
void AttendGrad(const AttendGradArgs<typename E::Tensor>& args, float* scratch) {
  using Packed = typename E::Packed;
  using Output = typename E::Output;
  const int64_t rows = PackedRows(args.tokens), width = PackedWidth(args.head_dim);
  ScratchArena arena(scratch);
  const auto take_packed = [&](int64_t terms) { return arena.Take<Packed>(terms / E::kTerms); };
  Blocks<E> x = {};
  x.width = width;
  const SoftmaxVariant& variant = args.variant;
  x.cap = variant.cap * kLog2E;
  x.scale = x.cap == 0 ? args.scale * kLog2E : args.scale / variant.cap;
  x.window = GetWindow(variant, args.keys == 0, args.keys + args.tokens + kRowTile);
  x.q_right = x.q_left = take_packed(rows * width);
  x.dcontext_right = x.dcontext_left = take_packed(rows * width);
  x.dq = arena.Take<float>(rows * width);
  x.lse = arena.Take<float>(PackedWidth(rows));
  x.dots = arena.Take<float>(PackedWidth(rows));
  x.k_right = take_packed(kKeyBlock * width);
  x.k_transposed = take_packed(width * kKeyBlock);
  x.v_transposed = take_packed(width * kKeyBlock);
  x.dk = arena.Take<float>(kKeyBlock * width);
  x.dv = arena.Take<float>(kKeyBlock * width);
  x.p_by_query = take_packed(kGradRows * kKeyBlock);
  x.ds_by_query = take_packed(kGradRows * kKeyBlock);
  if (E::kTerms > 1) {
    x.q_right = take_packed(rows * width);
    x.dcontext_right = take_packed(rows * width);
    x.p_tile = arena.Take<float>(kRowTile * kKeyBlock);
    x.ds_tile = take_packed(kRowTile * kKeyBlock);
  }
  if (variant.cap != 0) x.slopes = arena.Take<float>(kRowTile * kKeyBlock);
  if (variant.key_bias != nullptr) {
    x.key_bias = arena.Take<float>(kKeyBlock);
    x.dkey_bias = arena.Take<float>(kKeyBlock);
    x.own_bias = arena.Take<float>(PackedWidth(rows));
  }
  const int64_t n = args.tokens, c = args.head_dim;
  if (NeedsTotals(args)) {
    x.dk_total = arena.Take<float>(n * width);
    x.dv_total = arena.Take<float>(n * width);
  }
  arena.CheckWithin(AttendGradScratchBytes(n, c, sizeof(typename E::Tensor)));

  // A sink is not a key: the softmax of a variant with only a sink is plain except for its lse.
  const int64_t queries = args.keys > 0 && variant.window > 0 ? args.keys : n;
  const bool is_plain =
      variant.cap == 0 && variant.window == 0 && variant.slope == 0 && variant.key_bias == nullptr;
  for (int64_t head = 0; head < args.group; ++head) {
    for (int64_t j = 0; x.key_bias != nullptr && j < n; ++j) {
      args.dkey_bias[j * variant.key_bias_stride + head] = 0;
    }
    x.distance_slope = kLog2E * (args.slopes != nullptr ? args.slopes[head] : variant.slope);
    for (int64_t s0 = 0; s0 < queries; s0 += kQueryRows) {
      DifferentiateQueries<E>(args, head, s0, std::min(kQueryRows, queries - s0), is_plain, x);
    }
    for (int64_t i = queries; i < n; ++i) {
      std::fill_n(args.dq + i * args.q_stride + head * c, c, typename E::Tensor{});
    }
  }
  const int64_t seen = args.keys > 0 ? args.keys : n;  // number of keys with a query
  if (x.dk_total != nullptr) {
    Output *dk = reinterpret_cast<Output*>(args.dk), *dv = reinterpret_cast<Output*>(args.dv);
    Unpack(x.dk_total, seen, width, 1.0f, c, false, dk, args.kv_stride);
    Unpack(x.dv_total, seen, width, 1.0f, c, false, dv, args.kv_stride);
  }
  for (int64_t j = seen; j < n; ++j) {
    std::fill_n(args.dk + j * args.kv_stride, c, typename E::Tensor{});
    std::fill_n(args.dv + j * args.kv_stride, c, typename E::Tensor{});
  }
}

AttendGradFn<float> SelectAttendGradF32() { return AttendGrad<F32Operands<float>>; }
AttendGradFn<uint16_t> SelectAttendGradBf16() {
#if HWY_TARGET == HWY_AVX3
  if (UsesBf16Pairs()) return AttendGrad<Bf16x2Operands>;
#endif
  return AttendGrad<F32Operands<uint16_t>>;
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

// Returns the size for f32 operands; bf16x2 operands do not need more.
int64_t AttendGradScratchBytes(int64_t tokens, int64_t head_dim, int64_t element_bytes) {
  const int64_t rows = PackedRows(tokens), width = PackedWidth(head_dim);
  const int64_t totals = element_bytes < 4 ? 2 * tokens * width : 0;
  const int64_t floats = rows * 3 * width + 3 * PackedWidth(rows) + 5 * kKeyBlock * width +
                         (2 * kGradRows + kMaxRowTile + 2) * kKeyBlock + totals;
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
