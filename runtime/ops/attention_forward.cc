// The forward core of attention. Softmax over blocks of keys with a running maximum and sum:
// Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); the blocking is that of
// Dao et al., "FlashAttention" (2022), algorithm 1, with the loop over queries outside.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/ops/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/attention_forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/attention_tiles-inl.h"
#include "runtime/ops/simd_fold-inl.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The state of one block of queries between two blocks of keys.
struct QueryBlock {
  float* q;        // [kQueryBlock][width]
  float* scores;   // [kQueryBlock][kKeyBlock], then probabilities times a row factor
  float* sum;      // [kQueryBlock][width], probability-weighted values so far
  float* maximum;  // [kQueryBlock], of the scores so far
  float* total;    // [kQueryBlock], of the exponentials so far
  float* raised;   // [kQueryBlock], the maximum with the block at hand
  float* decay;    // [kQueryBlock], what the raised maximum makes of earlier exponentials
};

// For kRowTile rows of scores, of which row r sees `visible` + r keys (of `vectors` vectors, and
// none if that is negative): raises the rows' maxima, and makes of the scores exp(score - maximum),
// 0 where nothing is seen. `sums` gets the rows' sums.
static_assert(kRowTile == 4, "FoldLanes takes four rows");
HWY_INLINE void ExponentiateRows(float* scores, int64_t visible, int64_t vectors,
                                 const float* maximum, float* raised, float* sums) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vf minus_infinity = hn::Set(d, kMinusInfinity);
  Vf row[kRowTile];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowTile; ++r) row[r] = hn::Set(d, maximum[r]);
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t seen = visible - v * lanes;  // in this vector, by the first row
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
      float* at = scores + r * kKeyBlock + v * lanes;
      Vf x = hn::Load(d, at);
      if (seen < lanes) {
        const int64_t count = std::max<int64_t>(0, std::min(lanes, seen + r));
        x = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), x, minus_infinity);
        hn::Store(x, d, at);
      }
      row[r] = hn::Max(row[r], x);
    }
  }
  FoldLanes(d, row[0], row[1], row[2], row[3], Maximum(), raised);

  Vf top[kRowTile];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowTile; ++r) {
    top[r] = hn::Set(d, raised[r]);
    row[r] = hn::Zero(d);
  }
  for (int64_t v = 0; v < vectors; ++v) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowTile; ++r) {
      float* at = scores + r * kKeyBlock + v * lanes;
      const Vf e = ExpKeepingNaN(d, hn::Sub(hn::Load(d, at), top[r]));
      hn::Store(e, d, at);
      row[r] = hn::Add(row[r], e);
    }
  }
  FoldLanes(d, row[0], row[1], row[2], row[3], Sum(), sums);
}

// One block of queries [first_query, +rows) against the block of keys that starts at `first_key`.
void AttendBlock(const AttendArgs& args, int64_t first_query, int64_t rows, int64_t first_key,
                 const float* keys, const float* values, int64_t width, const QueryBlock& block) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim;
  const bool first = first_key == 0;
  // Key `first_key + j` is seen by row r of the block when j <= r + diagonal.
  const int64_t diagonal = args.offset + first_query - first_key;
  const auto visible = [&](int64_t r) {
    return std::max<int64_t>(0, std::min(kKeyBlock, r + diagonal + 1));
  };

  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    const int64_t seen = visible(std::min(r0 + kRowTile, rows) - 1);
    const int64_t vectors = VectorCount(seen);
    if (seen > 0) {
      // A tile's rows beyond the block multiply whatever the scratch holds; nothing reads the
      // result.
      MultiplyRows({block.q + r0 * width, width, 1}, keys, kKeyBlock, c, vectors,
                   block.scores + r0 * kKeyBlock, kKeyBlock, FromZero());
    }
    // `decay` holds the block's own sums until the maxima of all rows are known. The first block's
    // are the totals.
    ExponentiateRows(block.scores + r0 * kKeyBlock, r0 + diagonal + 1, vectors, block.maximum + r0,
                     (first ? block.maximum : block.raised) + r0,
                     (first ? block.total : block.decay) + r0);
  }

  for (int64_t r = 0; r < rows && !first; r += lanes) {
    const Vf raised = hn::Load(d, block.raised + r);
    const Vf sum = hn::Load(d, block.decay + r);
    const Vf decay = ExpKeepingNaN(d, hn::Sub(hn::Load(d, block.maximum + r), raised));
    hn::Store(hn::MulAdd(hn::Load(d, block.total + r), decay, sum), d, block.total + r);
    hn::Store(raised, d, block.maximum + r);
    hn::Store(decay, d, block.decay + r);
  }

  const int64_t width_vectors = VectorCount(c);
  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    const int64_t seen = visible(std::min(r0 + kRowTile, rows) - 1);
    if (seen == 0) continue;  // nothing new: the sum stands, and its decay is 1
    const LeftOperand p = {block.scores + r0 * kKeyBlock, kKeyBlock, 1};
    float* sum = block.sum + r0 * width;
    if (first) {
      MultiplyRows(p, values, width, seen, width_vectors, sum, width, FromZero());
    } else {
      MultiplyRows(p, values, width, seen, width_vectors, sum, width,
                   FromScaledSum{width, block.decay + r0});
    }
  }
}

// context = sum / total, lse = maximum + log(total).
void FinishBlock(const AttendArgs& args, int64_t first_query, int64_t rows, int64_t width,
                 const QueryBlock& block) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; r += lanes) {
    const Vf total = hn::Load(d, block.total + r);
    hn::Store(hn::Div(hn::Set(d, 1.0f), total), d, block.decay + r);
    if (args.lse != nullptr) {
      const Vf lse = hn::Add(hn::Load(d, block.maximum + r), hn::Log(d, total));
      Tail<Df>(d, std::min(lanes, rows - r)).Store(lse, d, args.lse + first_query + r);
    }
  }
  const int64_t last = (VectorCount(args.head_dim) - 1) * lanes;
  const Tail<Df> tail(d, args.head_dim - last);
  for (int64_t r = 0; r < rows; ++r) {
    const Vf factor = hn::Set(d, block.decay[r]);
    const float* sum = block.sum + r * width;
    float* context = args.context + (first_query + r) * args.context_stride;
    for (int64_t e = 0; e < last; e += lanes) {
      hn::StoreU(hn::Mul(hn::Load(d, sum + e), factor), d, context + e);
    }
    tail.Store(hn::Mul(hn::Load(d, sum + last), factor), d, context + last);
  }
}

void Attend(const AttendArgs& args, float* scratch) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim;
  const int64_t width = PackedWidth(c);
  const int64_t n_keys = args.offset + args.queries;
  const int64_t key_blocks = (n_keys + kKeyBlock - 1) / kKeyBlock;

  QueryBlock block;
  block.q = scratch;
  block.scores = block.q + kQueryBlock * width;
  block.sum = block.scores + kQueryBlock * kKeyBlock;
  block.maximum = block.sum + kQueryBlock * width;
  block.total = block.maximum + kQueryBlock;
  block.raised = block.total + kQueryBlock;
  block.decay = block.raised + kQueryBlock;
  float* values = block.decay + kQueryBlock;
  float* keys = values + key_blocks * kKeyBlock * width;

  PackRows(args.v, args.kv_stride, n_keys, c, values, width);
  for (int64_t b = 0; b < key_blocks; ++b) {
    const int64_t j0 = b * kKeyBlock;
    PackTransposed(args.k + j0 * args.kv_stride, args.kv_stride, std::min(kKeyBlock, n_keys - j0),
                   c, args.scale, keys + b * c * kKeyBlock);
  }

  for (int64_t i0 = 0; i0 < args.queries; i0 += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, args.queries - i0);
    PackRows(args.q + i0 * args.q_stride, args.q_stride, rows, c, block.q, width);
    // Whole vectors, so that rows which a vector of states holds beyond the block are defined.
    for (int64_t r = 0; r < rows; r += lanes) {
      hn::Store(hn::Set(d, kMinusInfinity), d, block.maximum + r);
      hn::Store(hn::Zero(d), d, block.total + r);
      hn::Store(hn::Zero(d), d, block.raised + r);
      hn::Store(hn::Zero(d), d, block.decay + r);
    }
    const int64_t last_key = args.offset + i0 + rows - 1;
    for (int64_t j0 = 0; j0 <= last_key; j0 += kKeyBlock) {
      AttendBlock(args, i0, rows, j0, keys + j0 * c, values + j0 * width, width, block);
    }
    FinishBlock(args, i0, rows, width, block);
  }
}

AttendFn SelectAttend() { return Attend; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAttend);

AttendFn ChooseAttend() { return HWY_DYNAMIC_DISPATCH(SelectAttend)(); }

int64_t AttendScratchBytes(int64_t keys, int64_t head_dim) {
  const int64_t padded = (keys + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  const int64_t width = PackedWidth(head_dim);
  const int64_t floats = kQueryBlock * (kKeyBlock + 2 * width + 4) + padded * (width + head_dim);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
