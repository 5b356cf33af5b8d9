// SPDX-License-Identifier: Apache-2.0
// InitSpec: initial distribution of a tensor, a value. InitRules: applies init rules to one weight
// at a time; thread-compatible, internal to runtime/model.
#ifndef PLUMB_RUNTIME_MODEL_INIT_RULES_H_
#define PLUMB_RUNTIME_MODEL_INIT_RULES_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

// Distribution with numeric arguments.
struct InitSpec {
  enum class Kind {
    kConstant,
    kNormal,
    kUniform,
    kTruncatedNormal,
    kTable,
    kFill
  } kind = Kind::kConstant;
  double a = 0;  // constant: the value; normal: mean; uniform: low; fill: a factor
  double b = 0;  // normal: standard deviation; uniform: high
  std::vector<double> table = {};  // table: the values, each repeated over as many elements
  double cut = 0;  // truncated normal: max distance from the mean, in multiples of b
  // Fill: the norm that writes the values, and the index of the tensor in NormInstance::Fill.
  std::shared_ptr<const NormInstance> norm = nullptr;
  size_t tensor = 0;

  InitSpec Scaled(double factor) const;
  // Returns "normal(0, 0.02)", "uniform(-0.25, 0.25)", "constant(1)", "table(0, 0, 1)" or
  // "fill(org.example.norm)".
  std::string ToString() const;
};

// Returns true if `name` matches `pattern`, in which "*" matches any run of characters.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Fan-in and fan-out, the inputs of a rule besides the scalars of its scope.
struct Fans {
  int64_t in;
  int64_t out;
};

class InitRules {
 public:
  explicit InitRules(const ResolvedModel& model) : model_(model) {}

  // Returns the distribution of a weight. Starts with `fallback` and applies the matching rules of
  // the model, then `own` (may be null), then those of the placement in `scope`: each replaces the
  // distribution if it has one, and the scales of all are multiplied.
  absl::StatusOr<InitSpec> Apply(const std::string& name, Fans fans, const InitSpec& fallback,
                                 const ScalarScope& scope, const InitRule* own = nullptr);

  // Does the same for a norm parameter or a learned value, with the rules that matched no weight.
  // Requires: Apply was called for all weights.
  absl::StatusOr<InitSpec> ApplyToOther(const std::string& name, const InitSpec& fallback,
                                        const ScalarScope& scope);

  // Returns an error for the first rule that matched nothing. Requires: all parameters were passed
  // to Apply or ApplyToOther.
  absl::Status CheckAllMatched() const;

 private:
  // `fans` is null for tensors without fans. Adds the applied rules to `matched`.
  absl::StatusOr<InitSpec> ApplyRules(const std::string& name, const Fans* fans,
                                      const InitSpec& fallback, const ScalarScope& scope,
                                      const InitRule* own, std::set<const InitRule*>* matched);

  const ResolvedModel& model_;
  std::set<const InitRule*> matched_;        // rules that matched a weight
  std::set<const InitRule*> matched_other_;  // rules that matched another tensor
  std::set<const PlacementSpec*> placements_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_INIT_RULES_H_
