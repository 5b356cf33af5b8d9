// SPDX-License-Identifier: Apache-2.0
// Where the time of training steps, or of passes of decoding, goes: a table of ops, as `plumb train
// --profile` and `plumb bench --profile` print it. Values.
#ifndef PLUMB_RUNTIME_APP_PROFILE_H_
#define PLUMB_RUNTIME_APP_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/app/plumb_api.h"

namespace plumb {

// An op of the step's graph, or a stage outside of it; sums over all profiled steps.
struct ProfileRow {
  std::string name;      // "matmul"; "optimizer", "gradient norm", "batches", "other"
  bool in_graph = true;  // an op
  int64_t runs = 0;
  double seconds = 0;
  // Floating-point operations that the op's algorithm needs, what a causal mask hides left out; 0
  // for ops whose time goes into memory. And bytes of its operands, each counted once, whole tables
  // of embeddings too; 0 outside of the graph.
  double flops = 0, bytes = 0;
};

struct Profile {
  int64_t steps = 0;
  double seconds = 0;  // of those steps
  // Ops, the longest first; then stages; then "other": the rest of the time.
  std::vector<ProfileRow> rows;
};

// Copies the rows of a trainer or a session, whose names do not live as long. Of no steps where no
// profile was turned on.
inline Profile ToProfile(const std::vector<api::ProfileRow>& rows) {
  Profile profile;
  for (const api::ProfileRow& row : rows) {
    if (&row == &rows.front()) {
      profile.steps = row.runs;
      profile.seconds = row.seconds;
    } else {
      profile.rows.push_back(
          {row.name, row.in_graph == 1, row.runs, row.seconds, row.flops, row.bytes});
    }
  }
  return profile;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_PROFILE_H_
