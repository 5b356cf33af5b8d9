// SPDX-License-Identifier: Apache-2.0
// RunStack: walks a model's formulas, layer by layer, and passes a FormulaBackend each value that
// they compute.
//
// The walk alone defines the meaning of a formula: scopes, streams, slots, conditions, folded
// scalars. It finds every error that a formula can contain, so the checker is the walk with a
// backend that computes nothing (NullBackend). Other backends emit graph nodes or describe the
// model.
#ifndef PLUMB_RUNTIME_SPEC_INTERPRET_H_
#define PLUMB_RUNTIME_SPEC_INTERPRET_H_

#include <vector>

#include "absl/status/status.h"
#include "runtime/spec/formula_backend.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Walks the whole model. Errors: those of the user's formulas, with their location, and those of
// the backend.
absl::Status RunStack(const ResolvedModel& model, FormulaBackend* backend);

// Checks all formulas of a resolved model. Returns OK or the first error. Appends to `defaults` the
// first call of each slot and norm for which the block's default norm is used.
absl::Status CheckFormulas(const ResolvedModel& model, std::vector<NormSite>* defaults);

// Checks that every table has a unique name and is read by some formula. Requires: CheckFormulas
// returned OK.
absl::Status CheckTokenTables(const ResolvedModel& model);

// Returns an error at the first `let`, `learned` or `linear` of a placement that no formula, init
// rule or other expression names. Conditions are ignored: a name in a statement that never runs
// counts as used. Inherited names are not checked.
absl::Status CheckNamesAreUsed(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_INTERPRET_H_
