// SPDX-License-Identifier: Apache-2.0
// MachineSpeed: measures the peak speed of the machine, the yardstick for passes of models, and
// owns the memory for that. Thread-compatible. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_MACHINE_SPEED_H_
#define PLUMB_RUNTIME_CAPI_MACHINE_SPEED_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/onednn/gemm_speed.h"

namespace plumb::capi {

class MachineSpeed {
 public:
  // Measures floating-point operations or bytes per second. `what`: PLUMB_SPEED_READ and so on.
  absl::StatusOr<double> Measure(int32_t what, int threads);

 private:
  absl::StatusOr<double> MeasureRead(int threads);

  GemmSpeed gemm_;
  AlignedBuffer memory_;
};

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_MACHINE_SPEED_H_
