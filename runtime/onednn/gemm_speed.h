// SPDX-License-Identifier: Apache-2.0
// GemmSpeed: how fast this machine multiplies matrices: the yardstick for models' passes.
//
// One product of [2048, 2048] matrices by oneDNN's matmul, the right operand packed beforehand as
// the library likes it best; the rows are shared out among the threads. Owns its operands, 48 MB in
// f32. Thread-compatible.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

class GemmSpeed {
 public:
  // `dtype`: of the operands, kF32 or kBF16; sums are f32. kUnimplemented where the library has no
  // such product for this processor, or is not there.
  static absl::StatusOr<std::unique_ptr<GemmSpeed>> Create(DType dtype, int threads);
  ~GemmSpeed();
  GemmSpeed(const GemmSpeed&) = delete;
  GemmSpeed& operator=(const GemmSpeed&) = delete;

  // Floating-point operations a second of one product.
  absl::StatusOr<double> Measure();

 private:
  struct Impl;
  explicit GemmSpeed(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
