// SPDX-License-Identifier: Apache-2.0
// GemmSpeed: measures how fast this machine multiplies matrices, as a yardstick for models' passes.
//
// Each thread multiplies 1,024 rows, or 2,048 of bf16, by one [2048, 2048] matrix with oneDNN's
// GEMM, which packs both. Owns the operands and a result per thread. Thread-compatible.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_

#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

class GemmSpeed {
 public:
  // Returns the floating-point operations per second of all threads, with operands of type kF32 or
  // kBF16 and f32 sums. The first call allocates the operands.
  // Errors: kUnimplemented if the library is missing or has no such product for this processor.
  absl::StatusOr<double> Measure(DType operands, int threads);

 private:
  AlignedBuffer a_, b_, c_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
