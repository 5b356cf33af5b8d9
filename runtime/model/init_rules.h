// SPDX-License-Identifier: Apache-2.0
// Init rules applied to one weight. Internal to runtime/model.
#ifndef PLUMB_RUNTIME_MODEL_INIT_RULES_H_
#define PLUMB_RUNTIME_MODEL_INIT_RULES_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/model/parameters.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

// Whether `name` matches `pattern`, in which "*" stands for any run of characters.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// The inputs of a rule besides the scalars of its scope.
struct Fans {
  int64_t in;
  int64_t out;
};

class InitRules {
 public:
  explicit InitRules(const ResolvedModel& model) : model_(model) {}

  // The distribution of one weight: `fallback`, unless a rule of the model, `own` (may be null), or
  // one of the placement in `scope`, gives another; times the scales of all rules that match.
  absl::StatusOr<InitSpec> Apply(const std::string& name, Fans fans, const InitSpec& fallback,
                                 const ScalarScope& scope, const InitRule* own = nullptr);

  // The same of a norm's parameter or a learned value, by the rules that match no weight. After all
  // weights.
  absl::StatusOr<InitSpec> ApplyToOther(const std::string& name, const InitSpec& fallback,
                                        const ScalarScope& scope);

  // After all of them: an error for the first rule that matched none.
  absl::Status CheckAllMatched() const;

 private:
  // `fans`: null of what has none. `matched`: gets the rules that hold.
  absl::StatusOr<InitSpec> ApplyRules(const std::string& name, const Fans* fans,
                                      const InitSpec& fallback, const ScalarScope& scope,
                                      const InitRule* own, std::set<const InitRule*>* matched);

  const ResolvedModel& model_;
  std::set<const InitRule*> matched_;        // by a weight
  std::set<const InitRule*> matched_other_;  // by anything else
  std::set<const PlacementSpec*> placements_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_INIT_RULES_H_
