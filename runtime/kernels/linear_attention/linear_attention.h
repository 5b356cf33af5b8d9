// SPDX-License-Identifier: Apache-2.0
// Linear attention with a state: for each head and token
//
//   H_t = diag(a_t) H_{t-1} + k_t u_t',  u_t = b_t (v_t - H_{t-1}' (a_t * k_t)),  o_t = H_t' q_t
//
// with H [key_dim, value_dim], the transpose of the state S of the papers, and a decay a_t that is
// one number or one per key channel. This is the gated delta rule (Yang et al., "Gated Delta
// Networks", 2024; with decays by channel Kimi Linear, 2025). Without the delta rule u_t = v_t
// (GLA, RetNet, Mamba-2).
//
// Tokens are processed in chunks of kRecurrenceChunk by matrix products (Yang et al.,
// "Parallelizing linear transformers with the delta rule", 2024). With g_t the sum of log decays in
// the chunk up to t:
//
//   (I + A diag(b)) W = V - (K * e^g) H,  A_ts = sum_c k_tc k_sc e^(g_tc - g_sc) for s < t
//   U = diag(b) W,  O = (Q * e^g) H + P U,  P_ts = sum_c q_tc k_sc e^(g_tc - g_sc) for s <= t
//   H <- diag(e^g_end) H + (K * e^(g_end - g))' U
//
// e^(g_t - g_s) is computed as the product of the decays after s up to t. So nothing is divided by
// a decay, nothing overflows if decays are at most 1, and no digits of large sums of logarithms
// cancel.
//
// Stateless. Scratch belongs to the caller and is aligned to 64 bytes.
#ifndef PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
#define PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_

#include <cstdint>

#include "runtime/base/divide.h"

namespace plumb {

// Tokens in a chunk.
inline constexpr int64_t kRecurrenceChunk = 64;

// Operands of one head of values in one sequence. Pointers are to the first token; a stride is the
// number of elements from one token to the next. T is float or uint16_t, bf16.
template <class T>
struct RecurrenceArgs {
  const T* q;
  const T* k;
  int64_t qk_stride;
  const T* v;
  T* context;
  int64_t v_stride;
  const T* decay = nullptr;  // log a_t; null: a_t is 1
  int64_t decay_stride = 0;
  bool decay_per_key = false;  // decay has key_dim elements and not one
  const T* beta = nullptr;     // b_t; null: no delta rule
  int64_t beta_stride = 0;
  int64_t tokens, key_dim, value_dim;
  float* state;             // H before the first token; becomes H after the last
  float* starts = nullptr;  // null, or [chunks, key_dim, value_dim]: H before each chunk
};

// Computes the contexts and the state. Few tokens without `starts` are processed one by one.
template <class T>
using RecurFn = void (*)(const RecurrenceArgs<T>& args, float* scratch);
template <class T>
RecurFn<T> ChooseRecur();

// Operands of the gradient for one head of keys and the `group` consecutive heads of values that
// share it. The members of `head` belong to the first of them; `context`, `state` are not read.
template <class T>
struct RecurrenceGradArgs {
  RecurrenceArgs<T> head;  // with starts [group, chunks, key_dim, value_dim]
  int64_t group;
  const T* dcontext;  // like v
  T* dq;              // like q and k
  T* dk;
  T* dv;                // like v
  T* ddecay = nullptr;  // like decay
  T* dbeta = nullptr;   // like beta
};
template <class T>
using RecurGradFn = void (*)(const RecurrenceGradArgs<T>& args, float* scratch);
template <class T>
RecurGradFn<T> ChooseRecurGrad();

// Return the number of floats of scratch.
int64_t RecurScratch(int64_t key_dim, int64_t value_dim);
int64_t RecurGradScratch(int64_t key_dim, int64_t value_dim, int64_t group);

inline int64_t ChunkCount(int64_t tokens) { return CeilDiv(tokens, kRecurrenceChunk); }

// Layout of the scratch, private to the folder.

// Rows of a diagonal block of the triangular matrices, which is processed row by row.
inline constexpr int64_t kTriangle = 16;

// Returns `width` rounded up to whole vectors of any instruction set.
constexpr int64_t PaddedWidth(int64_t width) { return RoundUp(width, 16); }

// Hands out parts of a scratch buffer, or, made from null, measures it.
class RecurrenceScratch {
 public:
  explicit RecurrenceScratch(float* memory) : memory_(memory) {}
  float* Take(int64_t floats) {
    float* const part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundUp(floats, 16);
    return part;
  }
  int64_t used() const { return used_; }

 private:
  float* const memory_;
  int64_t used_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
