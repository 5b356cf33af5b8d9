// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/machine_speed.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/kernels/gemv/read_speed.h"

namespace plumb::capi {

absl::StatusOr<double> MachineSpeed::Measure(int32_t what, int threads) {
  switch (what) {
    case PLUMB_SPEED_GEMM_F32:
      return gemm_.Measure(DType::kF32, threads);
    case PLUMB_SPEED_GEMM_BF16:
      return gemm_.Measure(DType::kBF16, threads);
    case PLUMB_SPEED_READ:
      return MeasureRead(threads);
    default:
      return absl::InvalidArgumentError(absl::StrCat("there is no speed ", what, " to measure"));
  }
}

absl::StatusOr<double> MachineSpeed::MeasureRead(int threads) {
  constexpr int64_t kReadBytes = int64_t{512} << 20;
  if (memory_.size() == 0) {
    PLUMB_RETURN_IF_ERROR(CheckMemoryBudget("reading memory", static_cast<double>(kReadBytes)));
    memory_ = AlignedBuffer(kReadBytes);
  }
  const size_t n = static_cast<size_t>(kReadBytes) / sizeof(float);
  return MeasureReadSpeed(absl::MakeConstSpan(memory_.as<float>(), n), threads);
}

}  // namespace plumb::capi

plumb_status plumb_runtime_measure_speed(plumb_runtime* runtime, int32_t what, double* per_second,
                                         plumb_error** error) {
  return plumb::capi::Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (per_second == nullptr) return plumb::capi::NullArgument("per_second");
    PLUMB_ASSIGN_OR_RETURN(*per_second,
                           runtime->speed.Measure(what, runtime->state->runtime->threads()));
    return absl::OkStatus();
  });
}
