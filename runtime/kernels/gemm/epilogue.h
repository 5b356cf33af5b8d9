// What a fused product does with finished sums while they are in the cache: adds to them, applies
// an activation, rounds. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"
#include "runtime/kernels/simd/activation_kind.h"

namespace plumb {

enum class FinishKind {
  kStore,  // out = sum
  kAdd,    // out = sum + operand
  kMul,    // out = sum * operand
  kAct,    // out = act(sum), slope = act'(sum) where it is wanted
};

// A block of sums, f32 [rows, columns], and the places of the block in the result. `out` may share
// memory with `operand` and, when the result is f32, with `sum`.
struct FinishArgs {
  int64_t rows, columns;
  int64_t next;  // so many columns to the right come next: their memory is asked for already
  const float* sum;
  int64_t ld_sum;
  const void* operand;  // of the result's dtype, as is all below; null for kStore, kAct
  void* slope;          // kAct: null when not wanted
  void* out;
  int64_t ld;  // of operand, slope and out
};
using FinishFn = void (*)(const FinishArgs& args);

// The function for this processor; `activation` matters for kAct only.
FinishFn SelectFinish(FinishKind kind, ActivationKind activation, DType out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_
