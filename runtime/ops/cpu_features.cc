#include "runtime/ops/cpu_features.h"

#include "hwy/highway.h"

namespace plumb {

std::string KernelTarget() {
  // What HWY_DYNAMIC_DISPATCH picks: the best target (lowest bit) that is both compiled in and
  // supported.
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace plumb
