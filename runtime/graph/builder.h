// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: appends nodes to a graph, running each op's shape rule. Thread-compatible.
//
// Errors stick: after the first one every call returns kNoValue and Finish() returns the error, so
// that code which builds reads as the equations do. It need not look in between: what ApplyAll then
// returns is long enough to index, and type() gives a shape of rank 4.
#ifndef PLUMB_RUNTIME_GRAPH_BUILDER_H_
#define PLUMB_RUNTIME_GRAPH_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

class GraphBuilder {
 public:
  explicit GraphBuilder(const OpRegistry* registry) : registry_(registry) {}
  GraphBuilder(const OpRegistry* registry, Graph graph);  // appends to an existing graph

  // Leaves. Names must be new.
  ValueId Parameter(absl::string_view name, TensorType type);
  ValueId Input(absl::string_view name, TensorType type);
  ValueId State(absl::string_view name, TensorType type);

  // Applies the op `op` and returns its outputs. `name` names the first output; further ones get
  // ".1", ".2". A name that is taken gets a numeric suffix; an empty one is made from the op's
  // name.
  std::vector<ValueId> ApplyAll(absl::string_view op, std::vector<ValueId> inputs, Attrs attrs = {},
                                absl::string_view name = "");
  // The same for ops with one output, or where the first is all that is wanted.
  ValueId Apply(absl::string_view op, std::vector<ValueId> inputs, Attrs attrs = {},
                absl::string_view name = "");

  void Output(absl::string_view name, ValueId value);
  void SetStream(ValueId value) { graph_.values[Index(value)].is_stream = true; }

  const TensorType& type(ValueId id) const;
  const Graph& graph() const { return graph_; }
  const OpRegistry& registry() const { return *registry_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status);  // keeps the first

  absl::StatusOr<Graph> Finish() &&;  // verified

 private:
  ValueId AddLeaf(absl::string_view name, TensorType type, ValueKind kind);
  ValueId AddValue(std::string name, TensorType type, ValueKind kind, int32_t producer);
  std::string UniqueName(absl::string_view wanted);

  const OpRegistry* registry_;
  Graph graph_;
  absl::flat_hash_map<std::string, int> names_;  // name -> how many suffixes were given out
  absl::Status status_;
  TensorType type_after_error_ = F32({1, 1, 1, 1});
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_BUILDER_H_
