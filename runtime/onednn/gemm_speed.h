// SPDX-License-Identifier: Apache-2.0
// GemmSpeed: measures how fast this machine multiplies matrices, as a yardstick for models' passes.
//
// It computes one product of [2048, 2048] matrices with oneDNN's matmul. The right operand is
// packed beforehand in the library's preferred layout, and the rows are divided among the threads.
// Owns its operands, 48 MB in f32. Thread-compatible.
#ifndef PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
#define PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

class GemmSpeed {
 public:
  // Prepares a product with operands of type kF32 or kBF16 and f32 sums.
  // Errors: kUnimplemented if the library is missing or has no such product for this processor.
  static absl::StatusOr<std::unique_ptr<GemmSpeed>> Create(DType dtype, int threads);
  ~GemmSpeed();
  GemmSpeed(const GemmSpeed&) = delete;
  GemmSpeed& operator=(const GemmSpeed&) = delete;

  // Returns the floating-point operations per second of one product.
  absl::StatusOr<double> Measure();

 private:
  struct Impl;
  explicit GemmSpeed(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_GEMM_SPEED_H_
