// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: appends nodes to a graph, running each op's shape rule. Thread-compatible.
//
// Errors stick: after the first one every call returns kNoValue and Finish() returns the error, so
// building code reads like equations. It need not check for errors in between: ApplyAll's result is
// long enough to index, and type() returns a shape of rank 4.
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

  // Adds a leaf. Requires: the name is new.
  ValueId Parameter(absl::string_view name, TensorType type);
  ValueId Input(absl::string_view name, TensorType type);
  ValueId State(absl::string_view name, TensorType type);

  // Applies the op `op` and returns its outputs. `name` names the first output; the others get
  // ".1", ".2". A name in use gets a numeric suffix; an empty one is replaced by the op's name.
  std::vector<ValueId> ApplyAll(absl::string_view op, std::vector<ValueId> inputs, Attrs attrs = {},
                                absl::string_view name = "");
  // Returns the first output only.
  ValueId Apply(absl::string_view op, std::vector<ValueId> inputs, Attrs attrs = {},
                absl::string_view name = "");

  void Output(absl::string_view name, ValueId value);
  void SetStream(ValueId value) { graph_.values[Index(value)].is_stream = true; }

  const TensorType& type(ValueId id) const;
  const Graph& graph() const { return graph_; }
  const OpRegistry& registry() const { return *registry_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status);  // keeps the first error

  absl::StatusOr<Graph> Finish() &&;  // the graph is verified

 private:
  ValueId AddLeaf(absl::string_view name, TensorType type, ValueKind kind);
  ValueId AddValue(std::string name, TensorType type, ValueKind kind, int32_t producer);
  std::string UniqueName(absl::string_view wanted);

  const OpRegistry* registry_;
  Graph graph_;
  absl::flat_hash_map<std::string, int> names_;  // name -> number of suffixes used
  absl::Status status_;
  TensorType type_after_error_ = F32({1, 1, 1, 1});
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_BUILDER_H_
