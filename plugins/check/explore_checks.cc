#include "plugins/check/explore_checks.h"

#include <vector>

#include "plugins/check/lists.h"

namespace plumb::check {

std::vector<Check> ExploringChecks() {
  constexpr int kNumeric = 2, kStrict = 3;
  std::vector<Check> checks = {
      {"X1", kNumeric, Scope::kNorm, "values and gradients agree with f64, however they are called",
       ExploreTypes},
      {"X2", kNumeric, Scope::kNorm, "gradients are slopes, at any dim and any number of rows",
       ExploreSlopes},
      {"X3", kNumeric, Scope::kNorm, "a row has the same bits, however it is called", ExploreBits},
      {"X4", kNumeric, Scope::kNorm, "bf16 is the rounded f32 result, without bias",
       ExploreRounding},
      {"X5", kNumeric, Scope::kNorm, "what the flags claim is so", ExploreClaims},
      {"X6", kStrict, Scope::kNorm, "create and destroy leave the process as it was", ExploreLife},
      {"X7", kStrict, Scope::kNorm, "no allocation and no system call where there must be none",
       ExploreSystemCalls},
  };
  for (Check& check : checks) check.explores = true;
  return checks;
}

}  // namespace plumb::check
