// Cores of attention for bf16 tensors by the dot products of AVX512_BF16, which double the rate of
// the matrix products: probabilities and their gradients are rounded to bf16 for them, as
// FlashAttention does; softmax, sums and log-sum-exps are f32. Stateless.
#ifndef PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_H_
#define PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_H_

#include <cstdint>

#include "runtime/kernels/attention/attention.h"

namespace plumb {

// Null where kernels do not multiply pairs of bf16 (UsesBf16Pairs). Scratch is that of the general
// cores.
AttendFn<uint16_t> FindBf16Attend();
AttendGradFn<uint16_t> FindBf16AttendGrad();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_ATTENTION_BF16_H_
