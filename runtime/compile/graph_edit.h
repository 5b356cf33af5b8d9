// SPDX-License-Identifier: Apache-2.0
// GraphEdit: a graph in which a pass replaces, drops and inserts nodes. Positions are those of the
// original graph, so a pass need not track insertions. Private to the module. Thread-compatible.
#ifndef PLUMB_RUNTIME_COMPILE_GRAPH_EDIT_H_
#define PLUMB_RUNTIME_COMPILE_GRAPH_EDIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

class GraphEdit {
 public:
  explicit GraphEdit(Graph graph);

  // The original graph. Edits do not change its nodes and readers; they only add values.
  const Graph& graph() const { return graph_; }
  size_t node_count() const { return graph_.nodes.size(); }
  const Node& node(size_t position) const { return graph_.nodes[position]; }
  // Returns the positions of the nodes that read the value, each once, in order.
  const std::vector<int32_t>& readers(ValueId id) const { return readers_[Index(id)]; }
  bool IsOutput(ValueId id) const { return is_output_[Index(id)]; }
  // Returns true if only the node at `reader` reads the value, as one operand.
  bool IsReadOnceBy(ValueId id, size_t reader) const;
  // Returns true if no node overwrites the node's operands, so that it can run at a later position.
  bool MayMoveLater(const Node& node) const;
  // Returns true if the node at this position was replaced or dropped.
  bool IsEdited(size_t position) const { return edited_[position]; }

  void Drop(size_t position);
  // Replaces the node at `position` by `nodes`, which may define values of dropped nodes.
  void Replace(size_t position, std::vector<Node> nodes);
  void InsertAfter(size_t position, Node node);
  ValueId NewValue(const std::string& name, TensorType type);  // a name in use gets a suffix
  void AddOutput(const std::string& name, ValueId value) {
    graph_.outputs.push_back({name, value});
  }

  // Returns the edited graph, without values that no node defines any more.
  Graph Finish() &&;

 private:
  Graph graph_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_, overwritten_;  // indexed by ValueId
  std::vector<bool> edited_;                   // indexed by position
  std::vector<std::vector<Node>> in_place_;    // indexed by position; used if edited
  std::vector<std::vector<Node>> after_;       // indexed by position
  absl::flat_hash_set<std::string> names_;     // filled by the first NewValue
};

// Returns `graph` with only the nodes for which `keep` is true and the values that they define;
// leaves are kept. Requires: no kept node and no output reads a value of a dropped node.
Graph KeepNodes(Graph graph, const std::vector<bool>& keep);

// Returns true for a combine with coefficients 1 and no constant.
bool IsPlainSum(const Node& node);

// Returns true for a matmul whose result has the type of its operands.
bool IsPlainProduct(const GraphEdit& edit, const Node& node);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_GRAPH_EDIT_H_
