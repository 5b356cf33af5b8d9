// Tables over tokens that a model has beside its embedding (value embeddings, per-layer
// embeddings). Pure.
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

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TOKEN_TABLES_H_
