#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/out_of_memory.h"

namespace plumb {

struct MachineSpeed::Impl {
  int threads = 1;
  std::unique_ptr<HostRuntime> runtime;  // of its own, whose handle keeps the memory; null at first

  absl::StatusOr<double> Measure(int32_t what) {
    if (runtime == nullptr) {
      HostRuntimeOptions options;
      options.threads = threads;
      PLUMB_ASSIGN_OR_RETURN(runtime, HostRuntime::Create(options));
    }
    double speed = 0;
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_machine_speed, runtime->handle(), what, &speed));
    return speed;
  }
};

MachineSpeed::MachineSpeed(const HostRuntime* runtime) : impl_(std::make_unique<Impl>()) {
  impl_->threads = runtime->threads();
}
MachineSpeed::~MachineSpeed() = default;

absl::StatusOr<double> MachineSpeed::MeasureMatmul(const std::string& dtype) {
  if (dtype != "f32" && dtype != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("no matrix product of ", dtype, " to measure"));
  }
  return OrOutOfMemory("the matrices of the GEMM measurement", [&] {
    return impl_->Measure(dtype == "f32" ? PLUMB_SPEED_GEMM_F32 : PLUMB_SPEED_GEMM_BF16);
  });
}

absl::StatusOr<double> MachineSpeed::MeasureRead() {
  return OrOutOfMemory("the buffer of the memory measurement",
                       [&] { return impl_->Measure(PLUMB_SPEED_READ); });
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "VmHWM:")) continue;
    return 1024 * std::strtoll(line.c_str() + sizeof("VmHWM:"), nullptr, 10);  // "VmHWM:  12 kB"
  }
  return 0;
}

bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";
  return static_cast<bool>(clear.flush());
}

}  // namespace plumb
