// Names that a placement declares and nothing uses. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_UNUSED_NAMES_H_
#define PLUMB_RUNTIME_SPEC_UNUSED_NAMES_H_

#include "absl/status/status.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// An error at the first `let` or `learned` of a placement of the model that no formula, init rule
// or other expression names, whether or not a condition lets it run. What a placement inherits is
// not its mistake.
absl::Status CheckNamesAreUsed(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_UNUSED_NAMES_H_
