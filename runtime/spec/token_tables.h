// SPDX-License-Identifier: Apache-2.0
// Names that a placement declares: tables over tokens beside the embedding (value embeddings,
// per-layer embeddings), and the check that each name is used. Internal to runtime/spec. Pure.
#ifndef PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_
#define PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// The model's table of that name, or null.
const TokenTable* FindTokenTable(const ResolvedModel& model, const std::string& name);

// What a backend is asked for: FormulaBackend::TokenEmbedding. `layer` is 1..n_layer where there is
// a table a layer, and not read where there is one for all.
TokenEmbeddingSite SiteOf(const TokenTable& table, int64_t layer);

// Every table has a name of its own, and some formula reads it. REQUIRES: the formulas are right.
absl::Status CheckTokenTables(const ResolvedModel& model);

// Returns an error at the first `let` or `learned` of a placement of the model that no formula,
// init rule or other expression names, whether or not a condition lets it run. What a placement
// inherits is not its mistake.
absl::Status CheckNamesAreUsed(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_
