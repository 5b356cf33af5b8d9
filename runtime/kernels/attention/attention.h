// SPDX-License-Identifier: Apache-2.0
// The SIMD kernels of attention: some queries of one head (or one group of heads that share keys),
// one thread, causal or of all keys, blocked over queries and keys so that no [T, T] matrix exists.
// Stateless; the functions are chosen once for the machine and may run at once with different
// scratch.
//
// T is what tensors hold: float, or uint16_t for bf16. Sums, maxima and log-sum-exps are f32 either
// way.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/divide.h"

namespace plumb {

// What a model may do to the softmax; a plain one does none of it, and pays for none.
struct SoftmaxVariant {
  float cap = 0;       // scores s become cap tanh(s / cap) (Gemma 2); 0: they stay
  int64_t window = 0;  // a query sees its own key and the window - 1 before it; 0: all before it
  float slope = 0;     // scores are then lowered by slope times the distance of the key (ALiBi)
  // A logit that joins the denominator and weights nothing (gpt-oss); -infinity: none.
  float sink = -std::numeric_limits<float>::infinity();

  // A NaN is one, and passes on.
  bool has_sink() const { return sink != -std::numeric_limits<float>::infinity(); }
  bool IsPlain() const { return cap == 0 && window == 0 && slope == 0 && !has_sink(); }
};

// context_i = sum_j softmax_j(scale * q_i . k_j) v_j over keys j <= offset + i, or, where `keys`
// says so, over keys j < keys. Strides in elements.
template <class T>
struct AttendArgs {
  const T* q;  // [queries, head_dim]
  int64_t q_stride;
  const T* k;  // [offset + queries, head_dim], or [keys, head_dim]
  const T* v;  // like k
  int64_t kv_stride;
  T* context;  // like q
  int64_t context_stride;
  float* lse;        // [queries] log-sum-exp of the scaled scores, or null
  int64_t queries;   // at most kQueryRows
  int64_t offset;    // keys that come before the first query's own; not read where `keys` is not 0
  int64_t keys = 0;  // that every query sees, in which case the variant has no window; 0: causal
  int64_t head_dim;
  float scale;
  SoftmaxVariant variant;
};
template <class T>
using AttendFn = void (*)(const AttendArgs<T>& args, float* scratch);

template <class T>
AttendFn<T> ChooseAttend();
int64_t AttendScratchBytes(int64_t queries, int64_t head_dim);

// The gradient for `group` query heads that share one head of keys and values. Head g of q,
// context, dcontext and dq stands head_dim * g elements on; its lse is lse + g * tokens. A sink is
// in the lse: that of the variant is not read.
template <class T>
struct AttendGradArgs {
  const T* q;
  const T* context;
  const T* dcontext;
  T* dq;
  int64_t q_stride;
  const T* k;
  const T* v;
  T* dk;
  T* dv;
  int64_t kv_stride;
  const float* lse;
  int64_t tokens;
  int64_t keys = 0;  // as that of AttendArgs; dk and dv of the others are 0
  int64_t group;
  int64_t head_dim;
  float scale;
  SoftmaxVariant variant;
  const float* slopes = nullptr;  // [group], in place of the variant's, or null
};
template <class T>
using AttendGradFn = void (*)(const AttendGradArgs<T>& args, float* scratch);

template <class T>
AttendGradFn<T> ChooseAttendGrad();
// `element_bytes` is sizeof(T).
int64_t AttendGradScratchBytes(int64_t tokens, int64_t head_dim, int64_t element_bytes);

// One query against `keys` rows of a cache: reads keys and values once, packs nothing. The window
// is the caller's: that of the variant is not read. In a ring the rows from `straight` on stand
// `ring` rows before where they would.
template <class T>
struct AttendOneArgs {
  const T* q;  // [head_dim]
  const T* k;  // [keys, head_dim]
  const T* v;  // like k
  T* context;  // [head_dim]
  int64_t keys;
  int64_t head_dim;
  float scale;
  SoftmaxVariant variant;
  int64_t straight = std::numeric_limits<int64_t>::max();
  int64_t ring = 0;

  // Row j of `first`, which is k or v.
  const T* Row(const T* first, int64_t j) const {
    return first + (j < straight ? j : j - ring) * head_dim;
  }
};
template <class T>
using AttendOneFn = void (*)(const AttendOneArgs<T>& args, float* scratch);

template <class T>
AttendOneFn<T> ChooseAttendOne(int64_t head_dim);
int64_t AttendOneScratchBytes(int64_t keys);

// Where a block of queries stands among the keys.
struct QueryPlace {
  int64_t offset;  // query i sees the keys before offset + i + 1 ...
  int64_t keys;    // ... of these
};
// Of queries that see all keys: as if they came after them.
inline constexpr QueryPlace PlaceQueries(int64_t offset, int64_t queries, int64_t keys) {
  return keys > 0 ? QueryPlace{keys, keys} : QueryPlace{offset, offset + queries};
}

// Block sizes. A block of keys and one of values fit the first-level cache together and are packed
// once for kQueryRows queries, whose state fits the second-level cache. Backward takes kGradRows of
// these at a time. Rows of tiles divide all of them.
inline constexpr int64_t kQueryRows = 256;
inline constexpr int64_t kGradRows = 64;
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kMaxRowTile = 8;

// Rows of scores that forward makes, exponentiates and uses at a time: each of the three then runs
// long enough for the processor to overlap its parts.
inline constexpr int64_t kScoreRows = 64;
// Floats of a row's softmax denominator: a vector of partial sums.
inline constexpr int64_t kDenominatorWidth = 16;

// Floats by which packed rows are apart, or that a list of numbers takes: whole vectors of any
// instruction set.
inline constexpr int64_t PackedWidth(int64_t elements) { return RoundUp(elements, 16); }

// Rows of the largest block of queries, in whole tiles.
inline constexpr int64_t PackedRows(int64_t queries) {
  return CeilDiv(std::min(queries, kQueryRows), kMaxRowTile) * kMaxRowTile;
}

// Bump allocator over a kernel's scratch, of elements of 32 bits.
class ScratchArena {
 public:
  explicit ScratchArena(float* scratch) : begin_(scratch), next_(scratch) {}
  template <class T>
  T* Take(int64_t elements) {
    static_assert(sizeof(T) == sizeof(float), "sizes are in floats");
    return reinterpret_cast<T*>(std::exchange(next_, next_ + elements));
  }
  void CheckWithin(int64_t bytes) const {
    PLUMB_CHECK((next_ - begin_) * static_cast<int64_t>(sizeof(float)) <= bytes,
                "an attention kernel takes more scratch than it asked for");
  }

 private:
  float* const begin_;
  float* next_;
};

// Scores are made in units of log 2, so that their exponentials are powers of two.
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// A row's maximum is raised, and its sums rescaled, only when a score exceeds it by this much (in
// units of log 2): a factor of 2^8 costs sums in f32 no precision. After Dao et al.'s later
// kernels, which rescale as rarely.
inline constexpr float kRescaleThreshold = 8.0f;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_
