// SPDX-License-Identifier: Apache-2.0
// Names that a placement declares: extra tables over tokens (value embeddings, per-layer
// embeddings), and checks that each name is used. Stateless. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_
#define PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Returns the model's table of that name, or null.
const TokenTable* FindTokenTable(const ResolvedModel& model, const std::string& name);

// Returns the argument of FormulaBackend::TokenEmbedding. `layer` is in 1..n_layer if the table is
// per_layer, and otherwise ignored.
TokenEmbeddingSite SiteOf(const TokenTable& table, int64_t layer);

// Checks that every table has a unique name and is read by some formula. Requires: CheckFormulas
// returned OK.
absl::Status CheckTokenTables(const ResolvedModel& model);

// Returns an error at the first `let`, `learned` or `linear` of a placement that no formula, init
// rule or other expression names. Conditions are ignored: a name in a statement that never runs
// counts as used. Inherited names are not checked.
absl::Status CheckNamesAreUsed(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_
