// SPDX-License-Identifier: Apache-2.0
// MemoryPlan: the buffer of every value of a graph. Pure; a value: copies and prints.
//
// Parameters, inputs, states and outputs are external and bound by their owner. Everything else
// gets an offset in one arena; a value's bytes are free again once its last reader has run. An
// output that an op must write over its input (OpDef::updates) shares its buffer; one that may
// (may_alias) does if this is the last read of the input. If an aliasing output is bound by the
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
    // The nodes by which it is defined and read last; -1: before the first.
    int32_t first = 0, last = 0;
  };
  std::vector<Place> places;  // by ValueId
  // Parameters, inputs, states, then outputs that are none of these.
  std::vector<ValueId> externals;
  std::vector<int32_t> copied_outputs;  // indices into Graph::outputs: copied after the last node
  int64_t arena_bytes = 0;
  // The lower bound of any plan with these buffers: the largest sum of live bytes over all nodes.
  int64_t live_bytes = 0;
};

// REQUIRES: the graph is verified. An error when an output has the name of a leaf that it is not.
absl::StatusOr<MemoryPlan> PlanMemory(const Graph& graph);

// "arena+128", "parameter head.weight", "output loss": where a value lives.
std::string PlaceName(const MemoryPlan& plan, const Graph& graph, ValueId id);

// One line a value (name, bytes, place, first..last node that uses it), then the totals.
std::string ToString(const MemoryPlan& plan, const Graph& graph);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_MEMORY_PLAN_H_
