// MemoryPlan: where every value of a graph lives. Pure; a value: copies and prints.
//
// Parameters, inputs, states and outputs live outside and are bound by their owner. Everything else
// gets an offset in one arena; a value's bytes are free again once its last reader has run. An
// output that an op must write over its input (OpDef::updates) shares its place; one that may
// (may_alias) does when the input is read no more. Where such an output lives outside, the input is
// made there too: a gradient that is added to lies where it is asked for from the start.
//
// An output that is a leaf, or a value that an earlier output names too, has no place of its own:
// whoever runs the graph copies it when the last node has run. An output that is a state, updated
// in place, is found where the state is.
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
  // The least that any plan could need with these buffers: the largest sum of live bytes over all
  // nodes.
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
