// The backward core of attention: Dao et al., "FlashAttention" (2022), algorithm 4, for one head of
// keys and values and the query heads that share it. With p_ij = exp(s_ij - lse_i):
//   dv_j = sum_i p_ij dcontext_i
//   ds_ij = p_ij (dcontext_i . v_j - D_i),  D_i = dcontext_i . context_i
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i
#include <algorithm>
#include <cstdint>

#include "runtime/ops/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/attention_tiles-inl.h"
#include "runtime/ops/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

// Scratch of one block of keys and one of queries. Rows are `width` floats apart, score rows
// kKeyBlock.
struct Blocks {
  int64_t width;
  float* scores;     // [kQueryBlock], then p
  float* dscores;    // [kQueryBlock] dcontext . v, then scale * ds
  float* q;          // [kQueryBlock]
  float* dcontext;   // [kQueryBlock]
  float* dq;         // [kQueryBlock]
  float* k;          // [kKeyBlock]
  float* dk;         // [kKeyBlock]
  float* dv;         // [kKeyBlock]
  float* k_columns;  // [c][kKeyBlock], times scale
  float* v_columns;  // [c][kKeyBlock]
  float* dots;       // [group][tokens] D
};

HWY_INLINE float Dot(const float* a, const float* b, int64_t last, const Tail<Df>& tail) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vf sum = hn::Mul(tail.Load(d, a + last), tail.Load(d, b + last));
  for (int64_t e = 0; e < last; e += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + e), hn::LoadU(d, b + e), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// scores -> p and dscores -> scale * ds in the first `visible` keys of the row, 0 up to `vectors`.
HWY_INLINE void DifferentiateRow(float* scores, float* dscores, int64_t visible, int64_t vectors,
                                 float lse, float dot, float scale) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vf lse_v = hn::Set(d, lse), dot_v = hn::Set(d, dot), scale_v = hn::Set(d, scale);
  for (int64_t v = 0; v < vectors; ++v) {
    float* s = scores + v * lanes;
    float* t = dscores + v * lanes;
    const int64_t rest = std::max<int64_t>(0, std::min(lanes, visible - v * lanes));
    const auto mask = hn::FirstN(d, static_cast<size_t>(rest));
    const Vf p = ExpKeepingNaN(d, hn::Sub(hn::Load(d, s), lse_v));
    const Vf ds = hn::Mul(hn::Mul(p, hn::Sub(hn::Load(d, t), dot_v)), scale_v);
    // Lanes beyond the diagonal hold anything, NaN too: select, do not multiply.
    hn::Store(hn::IfThenElseZero(mask, p), d, s);
    hn::Store(hn::IfThenElseZero(mask, ds), d, t);
  }
}

// Adds what the block of queries [i0, +rows) of one head makes of the block of keys [j0, +n_keys)
// to dk, dv and, in the output, dq.
void DifferentiateBlock(const AttendGradArgs& args, int64_t head, int64_t i0, int64_t rows,
                        int64_t j0, int64_t n_keys, const Blocks& x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim, width = x.width;
  const int64_t channels = VectorCount(c);
  const int64_t start = i0 * args.q_stride + head * c;
  PackRows(args.q + start, args.q_stride, rows, c, x.q, width);
  PackRows(args.dcontext + start, args.q_stride, rows, c, x.dcontext, width);
  const float* lse = args.lse + head * args.tokens + i0;
  const float* dots = x.dots + head * args.tokens + i0;

  // Key j0 + j is seen by row r of the block when j <= r + i0 - j0; blocks begin on multiples of
  // kQueryBlock, so every row sees at least one.
  const auto visible = [&](int64_t r) { return std::min(n_keys, r + i0 - j0 + 1); };
  for (int64_t r0 = 0; r0 < rows; r0 += kRowTile) {
    const int64_t end = std::min(r0 + kRowTile, rows);
    const int64_t seen = visible(end - 1);
    const int64_t vectors = VectorCount(seen);
    float* scores = x.scores + r0 * kKeyBlock;
    float* dscores = x.dscores + r0 * kKeyBlock;
    // A tile's rows beyond the block multiply whatever the scratch holds; nothing reads the result.
    MultiplyRows({x.q + r0 * width, width, 1}, x.k_columns, kKeyBlock, c, vectors, scores,
                 kKeyBlock, FromZero());
    MultiplyRows({x.dcontext + r0 * width, width, 1}, x.v_columns, kKeyBlock, c, vectors, dscores,
                 kKeyBlock, FromZero());
    for (int64_t r = r0; r < end; ++r) {
      DifferentiateRow(x.scores + r * kKeyBlock, x.dscores + r * kKeyBlock, visible(r), vectors,
                       lse[r], dots[r], args.scale);
    }
    MultiplyRows({dscores, kKeyBlock, 1}, x.k, width, seen, channels, x.dq + r0 * width, width,
                 FromZero());
  }

  const int64_t seen = visible(rows - 1);
  for (int64_t g = 0; g < seen; g += kRowTile) {
    // The first row of queries that sees key g of the block, and so all four of the tile's columns
    // hold what DifferentiateRow left there.
    const int64_t from = std::max<int64_t>(0, j0 + g - i0);
    const LeftOperand p = {x.scores + from * kKeyBlock + g, 1, kKeyBlock};
    const LeftOperand ds = {x.dscores + from * kKeyBlock + g, 1, kKeyBlock};
    MultiplyRows(p, x.dcontext + from * width, width, rows - from, channels, x.dv + g * width,
                 width, FromSum{width});
    MultiplyRows(ds, x.q + from * width, width, rows - from, channels, x.dk + g * width, width,
                 FromSum{width});
  }

  const int64_t last = (channels - 1) * lanes;
  const Tail<Df> tail(d, c - last);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x.dq + r * width;
    float* to = args.dq + start + r * args.q_stride;
    if (j0 == 0) {
      for (int64_t e = 0; e < last; e += lanes) hn::StoreU(hn::Load(d, from + e), d, to + e);
      tail.Store(hn::Load(d, from + last), d, to + last);
    } else {
      for (int64_t e = 0; e < last; e += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, to + e), hn::Load(d, from + e)), d, to + e);
      }
      tail.Store(hn::Add(tail.Load(d, to + last), hn::Load(d, from + last)), d, to + last);
    }
  }
}

void AttendGrad(const AttendGradArgs& args, float* scratch) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t c = args.head_dim;
  const int64_t channels = VectorCount(c);

  Blocks x;
  x.width = PackedWidth(c);
  x.scores = scratch;
  x.dscores = x.scores + kQueryBlock * kKeyBlock;
  x.q = x.dscores + kQueryBlock * kKeyBlock;
  x.dcontext = x.q + kQueryBlock * x.width;
  x.dq = x.dcontext + kQueryBlock * x.width;
  x.k = x.dq + kQueryBlock * x.width;
  x.dk = x.k + kKeyBlock * x.width;
  x.dv = x.dk + kKeyBlock * x.width;
  x.k_columns = x.dv + kKeyBlock * x.width;
  x.v_columns = x.k_columns + kKeyBlock * c;
  x.dots = x.v_columns + kKeyBlock * c;

  const int64_t last = (channels - 1) * lanes;
  const Tail<Df> tail(d, c - last);
  for (int64_t head = 0; head < args.group; ++head) {
    for (int64_t i = 0; i < args.tokens; ++i) {
      const int64_t at = i * args.q_stride + head * c;
      x.dots[head * args.tokens + i] = Dot(args.dcontext + at, args.context + at, last, tail);
    }
  }

  for (int64_t j0 = 0; j0 < args.tokens; j0 += kKeyBlock) {
    const int64_t n_keys = std::min(kKeyBlock, args.tokens - j0);
    const float* k = args.k + j0 * args.kv_stride;
    const float* v = args.v + j0 * args.kv_stride;
    PackRows(k, args.kv_stride, n_keys, c, x.k, x.width);
    PackTransposed(k, args.kv_stride, n_keys, c, args.scale, x.k_columns);
    PackTransposed(v, args.kv_stride, n_keys, c, 1.0f, x.v_columns);
    const int64_t padded = (n_keys + kRowTile - 1) / kRowTile * kRowTile;
    for (int64_t j = 0; j < padded; ++j) {
      for (int64_t e = 0; e < channels * lanes; e += lanes) {
        hn::Store(hn::Zero(d), d, x.dk + j * x.width + e);
        hn::Store(hn::Zero(d), d, x.dv + j * x.width + e);
      }
    }
    for (int64_t head = 0; head < args.group; ++head) {
      for (int64_t i0 = j0; i0 < args.tokens; i0 += kQueryBlock) {
        DifferentiateBlock(args, head, i0, std::min(kQueryBlock, args.tokens - i0), j0, n_keys, x);
      }
    }
    for (int64_t j = 0; j < n_keys; ++j) {
      float* dk = args.dk + (j0 + j) * args.kv_stride;
      float* dv = args.dv + (j0 + j) * args.kv_stride;
      const int64_t at = j * x.width;
      for (int64_t e = 0; e < last; e += lanes) {
        hn::StoreU(hn::Load(d, x.dk + at + e), d, dk + e);
        hn::StoreU(hn::Load(d, x.dv + at + e), d, dv + e);
      }
      tail.Store(hn::Load(d, x.dk + at + last), d, dk + last);
      tail.Store(hn::Load(d, x.dv + at + last), d, dv + last);
    }
  }
}

AttendGradFn SelectAttendGrad() { return AttendGrad; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectAttendGrad);

AttendGradFn ChooseAttendGrad() { return HWY_DYNAMIC_DISPATCH(SelectAttendGrad)(); }

int64_t AttendGradScratchBytes(int64_t tokens, int64_t group, int64_t head_dim) {
  const int64_t width = PackedWidth(head_dim);
  const int64_t floats = kQueryBlock * (2 * kKeyBlock + 3 * width) +
                         kKeyBlock * (3 * width + 2 * head_dim) + group * tokens;
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace plumb
#endif  // HWY_ONCE
