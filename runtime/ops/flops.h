// SPDX-License-Identifier: Apache-2.0
// How many floating-point operations the ops with much arithmetic need (OpDef::flops). Pure.
#ifndef PLUMB_RUNTIME_OPS_FLOPS_H_
#define PLUMB_RUNTIME_OPS_FLOPS_H_

#include "runtime/graph/op.h"

namespace plumb {

// 2 m n k of the product of inputs 0 and 1 (matmul, matmul_act, matmul_act_grad, matmul_add); what
// is added or applied to the product is not counted.
double MatmulFlops(const OpTypes& types);
// matmul_shared: one left operand, `count` right ones.
double MatmulSharedFlops(const OpTypes& types);
// matmul_sum: `count` pairs, after the addend.
double MatmulSumFlops(const OpTypes& types);

// matmul_int8: as matmul_shared.
double MatmulInt8Flops(const OpTypes& types);

// Scores and their product with the values: two products for each pair of a query and a key that
// it sees, through a window only those in it. Each query sees the keys of its own call up to
// itself, or, given lengths, all of them; what a cache held before (which only the positions tell)
// comes on top and is not counted.
double AttentionFlops(const OpTypes& types);
double AttentionCachedFlops(const OpTypes& types);
// Five products a pair: the scores anew, and the gradients of weights, values, queries and keys.
double AttentionGradFlops(const OpTypes& types);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_FLOPS_H_
