// The SIMD cores of attention: one head (or one group of heads that share keys), one thread,
// causal, blocked over queries and keys so that no [T, T] matrix exists. Stateless; the functions
// are chosen once for the machine and may run at once with different scratch.
#ifndef PLUMB_RUNTIME_OPS_ATTENTION_KERNELS_H_
#define PLUMB_RUNTIME_OPS_ATTENTION_KERNELS_H_

#include <cstdint>

namespace plumb {

// context_i = sum_j softmax_j(scale * q_i . k_j) v_j over keys j <= offset + i. Strides in
// elements.
struct AttendArgs {
  const float* q;  // [queries, head_dim]
  int64_t q_stride;
  const float* k;  // [offset + queries, head_dim]
  const float* v;  // like k
  int64_t kv_stride;
  float* context;  // like q
  int64_t context_stride;
  float* lse;  // [queries] log-sum-exp of the scaled scores, or null
  int64_t queries;
  int64_t offset;  // keys that come before the first query's own
  int64_t head_dim;
  float scale;
};
using AttendFn = void (*)(const AttendArgs& args, float* scratch);

AttendFn ChooseAttend();
int64_t AttendScratchBytes(int64_t keys, int64_t head_dim);

// The gradient for `group` query heads that share one head of keys and values. Head g of q,
// context, dcontext and dq stands head_dim * g elements on; its lse is lse + g * tokens.
struct AttendGradArgs {
  const float* q;
  const float* context;
  const float* dcontext;
  float* dq;
  int64_t q_stride;
  const float* k;
  const float* v;
  float* dk;
  float* dv;
  int64_t kv_stride;
  const float* lse;
  int64_t tokens;
  int64_t group;
  int64_t head_dim;
  float scale;
};
using AttendGradFn = void (*)(const AttendGradArgs& args, float* scratch);

AttendGradFn ChooseAttendGrad();
int64_t AttendGradScratchBytes(int64_t tokens, int64_t group, int64_t head_dim);

// One query against the first `keys` rows of a cache: reads keys and values once, packs nothing.
struct AttendOneArgs {
  const float* q;  // [head_dim]
  const float* k;  // [keys, head_dim]
  const float* v;  // like k
  int64_t kv_stride;
  float* context;  // [head_dim]
  int64_t keys;
  int64_t head_dim;
  float scale;
};
using AttendOneFn = void (*)(const AttendOneArgs& args, float* scratch);

AttendOneFn ChooseAttendOne(int64_t head_dim);
int64_t AttendOneScratchBytes(int64_t keys);

// Block sizes. Row tiles divide query blocks, query blocks divide key blocks; a block of scores and
// one of keys fit the first-level cache together.
inline constexpr int64_t kRowTile = 4;
inline constexpr int64_t kQueryBlock = 32;
inline constexpr int64_t kKeyBlock = 64;

// Floats by which packed rows are apart: whole vectors of any instruction set.
inline constexpr int64_t PackedWidth(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ATTENTION_KERNELS_H_
