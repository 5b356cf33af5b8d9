// SPDX-License-Identifier: Apache-2.0
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_UNIFORM_DRAWS_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_UNIFORM_DRAWS_H_

#include <cstdint>

#include "runtime/base/rng.h"

namespace plumb {

// Writes out[i] = stream.Uniform(begin + i) for i < n, the same bits several times as fast.
void DrawUniforms(const RngStream& stream, uint64_t begin, int64_t n, double* out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_UNIFORM_DRAWS_H_
