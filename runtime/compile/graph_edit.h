// SPDX-License-Identifier: Apache-2.0
// GraphEdit: a graph in which a pass replaces, drops and inserts nodes. Positions are those of the
// original graph, so that a pass need not track insertions. Private to the module;
// thread-compatible.
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

  // The original graph: edits do not change its nodes and readers; values are only added.
  const Graph& graph() const { return graph_; }
  size_t node_count() const { return graph_.nodes.size(); }
  const Node& node(size_t position) const { return graph_.nodes[position]; }
  // The positions of the nodes that read the value, each once, in order.
  const std::vector<int32_t>& readers(ValueId id) const { return readers_[Index(id)]; }
  bool IsOutput(ValueId id) const { return is_output_[Index(id)]; }
  // Whether nothing but the node at `reader` sees the value, as one operand.
  bool IsReadOnceBy(ValueId id, size_t reader) const;
  // Whether the node's operands are still the same at a later position: no node overwrites them.
  bool MayMoveLater(const Node& node) const;
  // Whether the node at this position was replaced or dropped.
  bool IsEdited(size_t position) const { return edited_[position]; }

  void Drop(size_t position);
  // Puts nodes in the place of the one at `position`. They may define values of dropped nodes.
  void Replace(size_t position, std::vector<Node> nodes);
  void InsertAfter(size_t position, Node node);
  ValueId NewValue(std::string name, TensorType type);  // the name gets a suffix where it is taken
  void AddOutput(std::string name, ValueId value) { graph_.outputs.push_back({name, value}); }

  // The nodes as edited; values that no node defines any more are gone.
  Graph Finish() &&;

 private:
  Graph graph_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_, overwritten_;  // by ValueId
  std::vector<bool> edited_;                   // by position
  std::vector<std::vector<Node>> in_place_;    // by position, where edited
  std::vector<std::vector<Node>> after_;       // by position
  absl::flat_hash_set<std::string> names_;     // filled by the first NewValue
};

// combine with coefficients 1 and no constant.
bool IsPlainSum(const Node& node);

// matmul whose result has the type of its operands.
bool IsPlainProduct(const GraphEdit& edit, const Node& node);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_GRAPH_EDIT_H_
