#include "plugins/check/robustness_checks.h"

#include <vector>

#include "plugins/check/lists.h"

namespace plumb::check {

std::vector<Check> RobustnessChecks() {
  constexpr int kStrict = 3;
  return {
      {"R1", kStrict, Scope::kNorm, "allocates nothing in hot calls", CheckNoAllocation},
      {"R2", kStrict, Scope::kNorm, "keeps nothing from one hot call to the next", CheckNoState},
      {"R3", kStrict, Scope::kNorm, "create survives every failing allocation",
       CheckAllocationFailure},
      {"R4", kStrict, Scope::kNorm, "1000 instances leave nothing behind", CheckLeaks},
      {"R5", kStrict, Scope::kNorm, "lets no exception out", CheckExceptions},
      {"R6", kStrict, Scope::kNorm, "leaves the floating-point state as found",
       CheckFloatingPointState, /*timed=*/false, /*in_any_mode=*/true},
      {"R7", kStrict, Scope::kNorm, "returns, whatever the numbers", CheckReturns},
  };
}

}  // namespace plumb::check
