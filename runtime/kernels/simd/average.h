// Elementwise moves of one buffer towards another. Stateless; results do not depend on the number
// of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_AVERAGE_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_AVERAGE_H_

#include <cstdint>

#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

// average += weight * (x - average), of n elements; x as floats or split, to the same bits.
void MoveTowards(const float* x, float weight, int64_t n, int threads, float* average);
void MoveTowards(const SplitF32& x, float weight, int64_t n, int threads, float* average);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_AVERAGE_H_
