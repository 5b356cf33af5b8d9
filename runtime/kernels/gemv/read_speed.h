// SPDX-License-Identifier: Apache-2.0
// Measures the read bandwidth of this machine's memory, as a yardstick for decoding.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_READ_SPEED_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_READ_SPEED_H_

#include "absl/types/span.h"

namespace plumb {

// Reads all of `data` once, on `threads` threads, in whole vectors and several streams per thread,
// and returns bytes per second. `data` should be much larger than the caches. Thread-safe.
double MeasureReadSpeed(absl::Span<const float> data, int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_READ_SPEED_H_
