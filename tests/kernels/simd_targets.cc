// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/simd_targets.h"

#include "hwy/highway.h"

namespace plumb {
namespace {

void Allow(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

void ForEachSimdTarget(const std::function<void(const std::string& name)>& body) {
  Allow(0);  // all that the machine supports
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    Allow(target);
    body(hwy::TargetName(target));
  }
  Allow(0);
}

}  // namespace plumb
