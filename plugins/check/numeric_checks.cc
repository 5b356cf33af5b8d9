#include "plugins/check/numeric_checks.h"

#include <vector>

#include "plugins/check/check.h"
#include "plugins/check/lists.h"

namespace plumb::check {

std::vector<Check> NumericChecks() {
  const int level = 2;
  std::vector<Check> checks = {
      {"N1", level, Scope::kNorm, "forward computes the norm of its name", CheckForward},
      {"N2", level, Scope::kNorm, "backward is the derivative of forward", CheckGradient},
      {"N3", level, Scope::kNorm, "gradients are added or overwritten as asked", CheckAccumulation},
      {"N4", level, Scope::kNorm, "a row's result does not depend on other rows", CheckRowsAlone},
      {"N5", level, Scope::kNorm, "same bits every time, for any number of threads",
       CheckDeterminism},
      {"N6", level, Scope::kNorm, "different calls may run at once", CheckConcurrency},
      {"N7", level, Scope::kNorm, "touches nothing outside its rows", CheckBounds},
      {"N8", level, Scope::kNorm, "rows may lie anywhere", CheckAlignment},
      {"N9", level, Scope::kNorm, "any dim and any number of rows", CheckShapes},
  };
  for (Check& check : checks) check.in_any_mode = true;
  return checks;
}

}  // namespace plumb::check
