// SPDX-License-Identifier: Apache-2.0
// Time of training steps or decoding passes per op: the table printed by `plumb train --profile`
// and `plumb bench --profile`. Values.
#ifndef PLUMB_RUNTIME_CLIENT_PROFILE_H_
#define PLUMB_RUNTIME_CLIENT_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/client/plumb_api.h"

namespace plumb {

// Op of the step's graph, or a stage outside of it, summed over all profiled steps.
struct ProfileRow {
  std::string name;      // "matmul"; "optimizer", "gradient norm", "batches", "other"
  bool in_graph = true;  // true for ops
  int64_t runs = 0;
  double seconds = 0;
  // Floating-point operations that the op's algorithm needs, without those a causal mask skips; 0
  // for memory-bound ops. Bytes of its operands, each counted once, including whole embedding
  // tables; 0 outside of the graph.
  double flops = 0, bytes = 0;
};

struct Profile {
  int64_t steps = 0;
  double seconds = 0;  // total of those steps
  // Ops, longest first; then stages; then "other", the rest of the time.
  std::vector<ProfileRow> rows;
};

// Copies the rows of a trainer or session, whose names have a shorter lifetime. Returns a profile
// of 0 steps if profiling was off.
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

#endif  // PLUMB_RUNTIME_CLIENT_PROFILE_H_
