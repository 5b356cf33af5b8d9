#include "plugins/check/mode_checks.h"

#include <vector>

#include "plugins/check/lists.h"

namespace plumb::check {

std::vector<Check> ModeChecks() {
  constexpr int kNumeric = 2;
  std::vector<Check> checks = {
      {"N10", kNumeric, Scope::kNorm, "evaluates as it trains, and writes buffers when it may",
       CheckTrainAndEval},
      {"N11", kNumeric, Scope::kNorm, "writes over its inputs only where it was told to",
       CheckInPlace},
      {"N12", kNumeric, Scope::kNorm, "element types agree, and others are refused", CheckTypes},
      {"N13", kNumeric, Scope::kNorm,
       "zero, constant, tiny and huge rows; claims of scale and shift invariance", CheckHardRows},
      {"N14", kNumeric, Scope::kNorm, "NaN and Inf in one row stay there", CheckNotANumber},
      {"N15", kNumeric, Scope::kNorm, "denormal numbers cost no more than others", CheckDenormals,
       /*timed=*/true},
      {"N16", kNumeric, Scope::kNorm, "statistics do not depend on how rows are cut",
       CheckStatistics},
      {"N17", kNumeric, Scope::kNorm, "denormal operands give what zeros give",
       CheckDenormalOperands},
      {"N18", kNumeric, Scope::kNorm, "a second input is an input, and its gradient overwritten",
       CheckSecondInput},
      {"N19", kNumeric, Scope::kNorm, "rows of heads, told apart or all alike", CheckHeads},
      {"N20", kNumeric, Scope::kNorm, "a row depends on its own position and the step, if it asks",
       CheckContext},
  };
  for (Check& check : checks) {
    // Those two set the mode themselves.
    check.in_any_mode = check.run != CheckDenormals && check.run != CheckDenormalOperands;
  }
  return checks;
}

}  // namespace plumb::check
