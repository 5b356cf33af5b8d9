// SPDX-License-Identifier: Apache-2.0
// Plain causal attention over a few tokens with small heads, forward and backward: a vector holds
// the channels of several heads, and each pair of a query and a key is computed for all of them at
// once. Nothing is packed or masked, which would cost more than the arithmetic. Stateless.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_FEW_TOKENS_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_FEW_TOKENS_H_

#include <cstdint>

namespace plumb {

// One sequence. All tensors but `lse` are [tokens, heads * head_dim].
struct FewTokensArgs {
  const float *q, *k, *v;
  float* context;
  float* lse;  // [heads, tokens], log-sum-exp of the scaled scores
  int64_t tokens, heads, head_dim;
  float scale;
};
struct FewTokensGradArgs {
  const float *q, *k, *v, *context, *dcontext;
  const float* lse;  // of the forward pass
  float *dq, *dk, *dv;
  int64_t tokens, heads, head_dim;
  float scale;
};

struct FewTokensFns {
  void (*attend)(const FewTokensArgs& args);
  void (*attend_grad)(const FewTokensGradArgs& args);
};

// Returns the functions for these sizes, or nulls if attention.h is faster or vectors do not hold
// whole heads. Heads that share keys are not supported.
FewTokensFns ChooseFewTokens(int64_t tokens, int64_t heads, int64_t head_dim);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_FEW_TOKENS_H_
