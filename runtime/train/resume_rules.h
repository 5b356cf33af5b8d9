// SPDX-License-Identifier: Apache-2.0
// Rules for the fields of a recipe when a run is resumed: a field that gives the completed steps
// their meaning cannot change. docs/recipes.md has them as a table. Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_RESUME_RULES_H_
#define PLUMB_RUNTIME_TRAIN_RESUME_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plumb/v1/train.schema.h"

namespace plumb {

struct ResumeRule {
  absl::string_view fields;  // paths in v1::Train, with spaces between them
  bool may_change;
  absl::string_view note;  // effect of a change, or the reason why there can be none
};

// Returns the rules. Each field that is no message is in one of them, as is each repeated message.
absl::Span<const ResumeRule> ResumeRules();

// Fails if `now` differs from `then`, the recipe of the completed steps of `run`, in fields that
// may not change. Requires: both recipes have their defaults filled in. Errors: kInvalidArgument
// with each such field, its two values and the reason.
absl::Status CheckResumedRecipe(const std::string& run, const v1::Train& then,
                                const v1::Train& now);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RESUME_RULES_H_
