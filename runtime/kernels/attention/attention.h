// SPDX-License-Identifier: Apache-2.0
// SIMD kernels of attention. A call handles some queries of one head, or of a group of heads that
// share keys, on one thread, causal or over all keys. It is blocked over queries and keys, so that
// no [T, T] matrix exists. Stateless; the functions are chosen once for the machine, and concurrent
// calls need different scratch.
//
// T is the type of tensor elements: float, or uint16_t for bf16. Sums, maxima and log-sum-exps are
// f32 in both cases.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/divide.h"

namespace plumb {

// Modifications of the softmax. A plain one has none, and no cost for them.
struct SoftmaxVariant {
  float cap = 0;  // scores s become cap tanh(s / cap) (Gemma 2); 0: unchanged
  // A query attends to its own key and the window - 1 before it, and if attention is not causal
  // also to the window - 1 after it; 0: no limit.
  int64_t window = 0;
  float slope = 0;  // then lowers scores by slope times the distance of the key (ALiBi)
  // Logit that adds to the denominator and has no value vector (gpt-oss); -infinity: none.
  float sink = -std::numeric_limits<float>::infinity();
  // Biases of keys, then added to their scores: that of key j is key_bias[j * key_bias_stride]; or
  // null. The bias of the query's own key is subtracted, which changes no softmax without a sink,
  // so that large biases that grow with the position lose no precision.
  const float* key_bias = nullptr;
  int64_t key_bias_stride = 0;

  // Copies the biases of keys first, first + 1, ... of a head, counted from this variant's.
  void CopyKeyBias(int64_t head, int64_t first, int64_t count, float* to) const {
    for (int64_t j = 0; j < count; ++j) to[j] = key_bias[(first + j) * key_bias_stride + head];
  }
  // A NaN counts as a sink, so that it propagates.
  bool has_sink() const { return sink != -std::numeric_limits<float>::infinity(); }
  bool IsPlain() const {
    return cap == 0 && window == 0 && slope == 0 && !has_sink() && key_bias == nullptr;
  }
};

// Arguments of context_i = sum_j softmax_j(scale * q_i . k_j) v_j over keys j <= offset + i or, if
// `keys` is not 0, over keys j < keys. Strides in elements.
template <class T>
struct AttendArgs {
  const T* q;  // [queries, head_dim]
  int64_t q_stride;
  const T* k;  // [offset + queries, head_dim], or [keys, head_dim]
  const T* v;  // like k
  int64_t kv_stride;
  T* context;  // like q
  int64_t context_stride;
  float* lse;        // [queries], log-sum-exp of the scaled scores; or null
  int64_t queries;   // at most kQueryRows
  int64_t offset;    // number of keys before the first query's own; ignored if `keys` is not 0
  int64_t keys = 0;  // number of keys for every query; 0: causal. With a window, also their end
  int64_t head_dim;
  float scale;
  SoftmaxVariant variant;
};
template <class T>
using AttendFn = void (*)(const AttendArgs<T>& args, float* scratch);

template <class T>
AttendFn<T> ChooseAttend();
int64_t AttendScratchBytes(int64_t queries, int64_t head_dim);

// Arguments of the gradient for `group` query heads that share one head of keys and values. Head g
// of q, context, dcontext and dq is offset by head_dim * g elements; its lse is lse + g * tokens. A
// sink is part of the lse, so the variant's is ignored.
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
  int64_t keys = 0;  // see AttendArgs; dk and dv of the other keys, and dq with a window, become 0
  int64_t group;
  int64_t head_dim;
  float scale;
  SoftmaxVariant variant;
  const float* slopes = nullptr;  // [group], replaces the variant's slope; or null
  float* dkey_bias = nullptr;     // like the variant's key_bias; head g of both is offset by g
};
template <class T>
using AttendGradFn = void (*)(const AttendGradArgs<T>& args, float* scratch);

template <class T>
AttendGradFn<T> ChooseAttendGrad();
// Returns the scratch size; `element_bytes` is sizeof(T).
int64_t AttendGradScratchBytes(int64_t tokens, int64_t head_dim, int64_t element_bytes);

// Arguments for one query against `keys` rows of a cache; reads keys and values once and packs
// nothing. The caller applies the window; the variant's is ignored. In a ring buffer, rows from
// `straight` on are stored `ring` rows before their regular place.
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

  // Returns row j of `first`, which is k or v.
  const T* Row(const T* first, int64_t j) const {
    return first + (j < straight ? j : j - ring) * head_dim;
  }
};
template <class T>
using AttendOneFn = void (*)(const AttendOneArgs<T>& args, float* scratch);

template <class T>
AttendOneFn<T> ChooseAttendOne(int64_t head_dim);
int64_t AttendOneScratchBytes(int64_t keys);

// Causal extent of a block of queries.
struct CausalExtent {
  int64_t offset;  // query i attends to keys before min(offset + i + 1, keys)
  int64_t keys;
};
// Returns the extent. Queries that attend to later keys are placed after those: to all of them, or
// with a window to window - 1.
inline constexpr CausalExtent ComputeCausalExtent(int64_t offset, int64_t queries, int64_t keys,
                                                  int64_t window) {
  if (keys == 0) return {offset, offset + queries};
  if (window == 0) return {keys, keys};
  const int64_t shifted = offset + window - 1;
  return {shifted, std::min(keys, shifted + queries)};
}

// Block sizes. A KV block fits the L1 cache and is packed once for kQueryRows queries, whose state
// fits the L2 cache. The backward kernel handles kGradRows of these at a time. All are multiples of
// the rows of a tile.
inline constexpr int64_t kQueryRows = 256;
inline constexpr int64_t kGradRows = 64;
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kMaxRowTile = 8;

// Rows of scores that the forward kernel computes, exponentiates and uses at a time, so that each
// of these three phases is long enough for the processor to overlap its instructions.
inline constexpr int64_t kScoreRows = 64;
// Number of floats of a row's softmax denominator: a vector of partial sums.
inline constexpr int64_t kDenominatorWidth = 16;

// Returns the stride of packed rows, or the size of a list, in elements: whole vectors of any
// instruction set.
inline constexpr int64_t PackedWidth(int64_t elements) { return RoundUp(elements, 16); }

// Returns the number of rows of the largest block of queries, in whole tiles.
inline constexpr int64_t PackedRows(int64_t queries) {
  return CeilDiv(std::min(queries, kQueryRows), kMaxRowTile) * kMaxRowTile;
}

// Bump allocator over a kernel's scratch, for elements of 32 bits.
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

// Scores are in units of log 2, so that their exponentials are powers of two.
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// Threshold, in units of log 2, by which a score must exceed a row's maximum before the maximum is
// raised and the sums are rescaled: a factor of 2^8 costs f32 sums no precision. Later
// FlashAttention kernels by Dao et al. rescale as rarely.
inline constexpr float kRescaleThreshold = 8.0f;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_ATTENTION_H_
