// SPDX-License-Identifier: Apache-2.0
// Figures of softmax attention that its kernel does not keep, computed again from its operands.
// Stateless; results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_OPS_ATTENTION_FIGURES_H_
#define PLUMB_RUNTIME_OPS_ATTENTION_FIGURES_H_

#include <cstdint>

#include "runtime/ops/attention_shape.h"

namespace plumb {

// Operands of an `attention` node (ops.h), and its second result.
struct AttentionOperands {
  const void *q = nullptr, *k = nullptr;  // bf16 or f32
  bool is_bf16 = false;
  const float* sinks = nullptr;      // null: none
  const int32_t* lengths = nullptr;  // null: causal
  const float* key_bias = nullptr;   // [batch, tokens, heads]; null: none
  const float* lse = nullptr;        // [batch, heads, tokens]
};

// Sets, for each query, the entropy in nats of its attention weights, and its largest absolute
// logit, as it enters the softmax; both [batch, heads, tokens]. A sink counts as a key.
void ComputeAttentionFigures(const AttentionShape& shape, const AttentionOperands& operands,
                             int threads, float* entropy, float* max_logit);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ATTENTION_FIGURES_H_
