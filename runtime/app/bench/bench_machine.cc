// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "runtime/app/bench/bench.h"
#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<double> MachineSpeed::Measure(api::Speed speed) {
  if (!runtime_.has_value()) {
    api::RuntimeOptions options;
    options.threads = threads_;
    PLUMB_ASSIGN_OR_RETURN(runtime_, ToStatus(api::Runtime::Create(options)));
  }
  return OrOutOfMemory("the operands of the measurement",
                       [&] { return runtime_->MeasureSpeed(speed); });
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
