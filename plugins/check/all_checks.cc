#include <algorithm>
#include <initializer_list>
#include <vector>

#include "plugins/check/check.h"
#include "plugins/check/lists.h"

namespace plumb::check {

bool Report::failed() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

const std::vector<Check>& AllChecks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> checks;
    for (const auto list : std::initializer_list<std::vector<Check> (*)()>{
             ElfChecks,
             MetadataChecks,
             NumericChecks,
             ModeChecks,
             RobustnessChecks,
             ExploringChecks,
             PerformanceChecks,
         }) {
      const std::vector<Check> part = list();
      checks.insert(checks.end(), part.begin(), part.end());
    }
    return checks;
  }();
  return all;
}

}  // namespace plumb::check
