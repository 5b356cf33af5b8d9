// SPDX-License-Identifier: Apache-2.0
// Epilogues of GEMM: they add, multiply, apply an activation and round a block of finished sums
// while it is in the cache. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_

#include <cstdint>

#include "runtime/base/tensor_type.h"
#include "runtime/kernels/simd/activation_kind.h"

namespace plumb {

enum class Epilogue {
  kStore,       // out = sum
  kAdd,         // out = sum + operand
  kMul,         // out = sum * operand
  kActivation,  // out = act(sum); also derivative = act'(sum) if requested
};

// Arguments: a block of f32 sums [rows, columns] and the same block of the result. `out` may share
// memory with `operand` and, if the result is f32, with `sum`.
struct EpilogueArgs {
  int64_t rows, columns;
  const float* sum;
  int64_t ld_sum;
  const void* operand;  // in the result's dtype, like the next two; null for kStore, kActivation
  void* derivative;     // kActivation only; null if it is not needed
  void* out;
  int64_t ld;  // leading dimension of operand, derivative and out
};
using EpilogueFn = void (*)(const EpilogueArgs& args);

// Returns the function for this processor; `activation` is used for kActivation only.
EpilogueFn SelectEpilogue(Epilogue epilogue, ActivationKind activation, DType out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_
