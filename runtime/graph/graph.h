// SPDX-License-Identifier: Apache-2.0
// Graph: a program as SSA values and the nodes that compute them, in execution order.
//
// Values are tensors with static types. A node applies an op (graph/op.h) to values and defines new
// ones; a node's inputs are defined before it. Graph is a value: it copies and prints. The op
// definitions that it points to belong to the OpRegistry, which must outlive it.
#ifndef PLUMB_RUNTIME_GRAPH_GRAPH_H_
#define PLUMB_RUNTIME_GRAPH_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/tensor_type.h"
#include "runtime/graph/attrs.h"
#include "runtime/graph/op.h"

namespace plumb {

// Converts the number of a value, a node or an operand to an index of a vector.
constexpr size_t Index(int32_t id) { return static_cast<size_t>(id); }

enum class ValueKind {
  kParameter,  // trainable; stored outside of the program, read in place
  kInput,      // set before every run (tokens, positions, targets)
  kState,      // stored outside, updated in place by every run (KV cache)
  kComputed,   // defined by a node
};

struct Value {
  std::string name;  // unique in the graph: "layers.3.attention.norm.out"
  TensorType type;
  ValueKind kind = ValueKind::kComputed;
  int32_t producer = -1;   // index of the defining node, -1 unless kComputed
  bool is_stream = false;  // a named point of the residual stream: programs end there, so that it
                           // and its gradient can be observed
};

// Returns the type of a value's gradient: the value's own, but f32 for a parameter of any storage
// type, because the optimizer works on f32.
inline TensorType GradientType(const Value& value) {
  if (value.kind == ValueKind::kParameter) return F32(value.type.shape);
  return value.type;
}

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;   // in the op's order; kNoValue for an absent optional input
  std::vector<ValueId> outputs;  // all defined, in the op's order
  Attrs attrs;
};

// A value that outlives the run, with the name by which callers find it ("loss", "logits",
// "grad.head.weight").
struct GraphOutput {
  std::string name;
  ValueId value;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // Returns the output with this name or, without one, the value with this name; kNoValue if there
  // is none.
  ValueId FindOutput(absl::string_view name) const;
  ValueId FindValue(absl::string_view name) const;
};

// Prints one line per value and node, deterministically, without pointers:
//   %5 f32[7, 16] layers.0.attention.q = matmul(%3, %4) {transpose_b=true}
std::string ToString(const Graph& graph);
// Prints the line of one node.
std::string ToString(const Graph& graph, const Node& node);

// Checks the number of `node`'s inputs, then runs its op's shape rule on their types.
absl::StatusOr<std::vector<TensorType>> InferTypes(const Graph& graph, const Node& node);

// Checks all invariants above and re-runs every op's shape rule. An error is a bug in the pass that
// made the graph; it contains the node.
absl::Status Verify(const Graph& graph);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_GRAPH_H_
