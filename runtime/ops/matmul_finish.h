// What a fused product does with finished sums while they are in the cache: adds to them, applies
// an activation, rounds. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_OPS_MATMUL_FINISH_H_
#define PLUMB_RUNTIME_OPS_MATMUL_FINISH_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"
#include "runtime/ops/activation_kind.h"

namespace plumb {

enum class FinishKind {
  kStore,    // out = sum
  kAdd,      // out = sum + operand
  kAct,      // out = act(sum), pre = sum where it is wanted
  kActGrad,  // out = act'(operand) sum
};

// A block of sums, f32 [rows, columns], and the places of the block in the result. `out` may share
// memory with `operand` and, when the result is f32, with `sum`.
struct FinishArgs {
  int64_t rows, columns;
  const float* sum;
  int64_t ld_sum;
  const void* operand;  // of the result's dtype, as is all below; null for kStore, kAct
  void* pre;            // kAct: null when not wanted
  void* out;
  int64_t ld;  // of operand, pre and out
};
using FinishFn = void (*)(const FinishArgs& args);

// The function for this processor; `activation` matters for kAct and kActGrad only.
FinishFn SelectFinish(FinishKind kind, ActivationKind activation, DType out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATMUL_FINISH_H_
