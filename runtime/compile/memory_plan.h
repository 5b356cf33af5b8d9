// SPDX-License-Identifier: Apache-2.0
// MemoryPlan: the buffer of every value of a graph. Pure; a value: copies and prints.
//
// Parameters, inputs, states and outputs are external and bound by their owner. Every other value
// has an offset in one arena; its bytes are free again once its last reader has run. An output that
// an op must write over its input (OpDef::updates) shares the input's buffer; one that may
// (may_alias) does so if this is the last read of the input. If an aliasing output is bound by the
// caller, its input is planned into the same buffer, so gradients accumulate in place.
//
// An output that is a leaf, or the value of an earlier output, has no buffer of its own: it is
// copied after the last node. An output that is a state, updated in place, is in the state's
// buffer.
#ifndef PLUMB_RUNTIME_COMPILE_MEMORY_PLAN_H_
#define PLUMB_RUNTIME_COMPILE_MEMORY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

struct MemoryPlan {
  struct Place {
    enum class Kind { kExternal, kArena } kind = Kind::kArena;
    int64_t offset = 0;     // kArena: bytes from its start, a multiple of kAlignment
    int32_t external = -1;  // kExternal: index into `externals`
    // First and last node that uses the value; -1: before the first node.
    int32_t first = 0, last = 0;
  };
  std::vector<Place> places;  // indexed by ValueId
  // Parameters, inputs, states, then outputs that are none of these.
  std::vector<ValueId> externals;
  std::vector<int32_t> copied_outputs;  // indices into Graph::outputs
  int64_t arena_bytes = 0;
  // Lower bound of any plan with these buffers: the max over all nodes of the sum of live bytes.
  int64_t live_bytes = 0;
};

// Plans the memory of a graph. Requires: the graph is verified. Errors: kInvalidArgument if an
// output has the name of a leaf but another value.
absl::StatusOr<MemoryPlan> PlanMemory(const Graph& graph);

// Returns the place of a value: "arena+128", "parameter head.weight", "output loss".
std::string PlaceName(const MemoryPlan& plan, const Graph& graph, ValueId id);

// Prints one line per value (name, bytes, place, first..last node that uses it), then the totals.
std::string ToString(const MemoryPlan& plan, const Graph& graph);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_MEMORY_PLAN_H_
