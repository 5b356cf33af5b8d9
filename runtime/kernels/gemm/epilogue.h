// SPDX-License-Identifier: Apache-2.0
// Epilogues of GEMM, on a block of finished sums while it is in the cache: adds, multiplies,
// applies an activation, rounds. Stateless, thread-safe.
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
  kActivation,  // out = act(sum), derivative = act'(sum) where it is wanted
};

// A block of sums, f32 [rows, columns], and the block in the result. `out` may share
// memory with `operand` and, when the result is f32, with `sum`.
struct EpilogueArgs {
  int64_t rows, columns;
  const float* sum;
  int64_t ld_sum;
  const void* operand;  // of the result's dtype, as is all below; null for kStore, kActivation
  void* derivative;     // kActivation: null when not wanted
  void* out;
  int64_t ld;  // of operand, derivative and out
};
using EpilogueFn = void (*)(const EpilogueArgs& args);

// The function for this processor; `activation` matters for kActivation only.
EpilogueFn SelectEpilogue(Epilogue epilogue, ActivationKind activation, DType out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_EPILOGUE_H_
