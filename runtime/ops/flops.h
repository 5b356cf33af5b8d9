// SPDX-License-Identifier: Apache-2.0
// Floating-point operations of the ops with much arithmetic (OpDef::flops). Pure.
#ifndef PLUMB_RUNTIME_OPS_FLOPS_H_
#define PLUMB_RUNTIME_OPS_FLOPS_H_

#include "runtime/graph/op.h"

namespace plumb {

// Returns 2 m n k of the product of inputs 0 and 1 (matmul, matmul_act, matmul_act_grad,
// matmul_add), without the epilogue.
double MatmulFlops(const OpTypes& types);
// Counts matmul_shared: one left operand, `count` right ones.
double MatmulSharedFlops(const OpTypes& types);
// Counts matmul_sum: `count` pairs, after the addend.
double MatmulSumFlops(const OpTypes& types);

// Counts matmul_int8, as matmul_shared.
double MatmulInt8Flops(const OpTypes& types);

// Counts scores and their product with the values: two products for each pair of a query and a
// visible key, in the window if there is one. Each query sees the keys of its own call up to
// itself, or, given lengths, all of them. Keys that a cache held before are not counted, because
// only the positions determine their number.
double AttentionFlops(const OpTypes& types);
double AttentionCachedFlops(const OpTypes& types);
// Counts five products per pair: the recomputed scores, and the gradients of weights, values,
// queries and keys.
double AttentionGradFlops(const OpTypes& types);

// Counts, for each token and head, the update of the state and its product with the query, and with
// the delta rule its product with the key. The products inside chunks are not counted. The gradient
// has two products for each of them, and computes half of them again.
double LinearAttentionFlops(const OpTypes& types);
double LinearAttentionCachedFlops(const OpTypes& types);
double LinearAttentionGradFlops(const OpTypes& types);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_FLOPS_H_
