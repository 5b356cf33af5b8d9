// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// Returns the layer of a forward node, by the name of its result: N of "layers.N.attention.q"; else
// -1.
int64_t GetLayer(const Graph& graph, const Node& node) {
  if (node.outputs.empty()) return -1;
  absl::string_view name = graph.value(node.outputs[0]).name;
  int64_t layer;
  if (!absl::ConsumePrefix(&name, "layers.") ||
      !absl::SimpleAtoi(name.substr(0, name.find('.')), &layer)) {
    return -1;
  }
  return layer;
}

class Recomputation {
 public:
  explicit Recomputation(Graph graph)
      : graph_(std::move(graph)),
        edit_(graph_),
        layer_(graph_.nodes.size(), -1),
        copy_(graph_.values.size(), kNoValue),
        inputs_(graph_.nodes.size()),
        before_(graph_.nodes.size()) {
    // Differentiate appends the backward pass to the forward pass, and names its values grad.*.
    while (first_backward_ < graph_.nodes.size() && !IsGradient(graph_.nodes[first_backward_])) {
      ++first_backward_;
    }
    for (size_t i = 0; i < first_backward_; ++i) {
      layer_[i] = GetLayer(graph_, graph_.nodes[i]);
      if (layer_[i] >= 0) nodes_of_[layer_[i]].push_back(i);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) inputs_[i] = graph_.nodes[i].inputs;
  }

  Graph Run() && {
    for (const auto& [layer, nodes] : nodes_of_) RecomputeLayer(nodes);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (before_[i].empty() && inputs_[i] == graph_.nodes[i].inputs) continue;
      std::vector<Node> nodes = std::move(before_[i]);
      nodes.push_back(graph_.nodes[i]);
      nodes.back().inputs = inputs_[i];
      edit_.Replace(i, std::move(nodes));
    }
    return std::move(edit_).Finish();
  }

 private:
  bool IsGradient(const Node& node) const {
    return !node.outputs.empty() && absl::StartsWith(graph_.value(node.outputs[0]).name, "grad.");
  }

  // Returns true for a value that the forward pass needs outside of its layer, or that cannot be
  // recomputed.
  bool IsKept(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.producer < 0 || edit_.IsOutput(id)) return true;
    const size_t producer = Index(value.producer);
    if (producer >= first_backward_ || layer_[producer] < 0 || !IsRepeatable(producer)) return true;
    const std::vector<int32_t>& readers = edit_.readers(id);
    return std::any_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return Index(reader) < first_backward_ && layer_[Index(reader)] != layer_[producer];
    });
  }

  // Returns true if the node computes the same later: it updates nothing, and nothing that it reads
  // is updated.
  bool IsRepeatable(size_t i) const {
    return graph_.nodes[i].op->updates.empty() && edit_.MayMoveLater(graph_.nodes[i]);
  }

  void RecomputeLayer(const std::vector<size_t>& nodes) {
    // The layer's values that the backward pass reads, and the first such reader.
    std::vector<bool> wanted(graph_.values.size(), false);
    size_t first_reader = graph_.nodes.size();
    for (const size_t i : nodes) {
      for (const ValueId id : graph_.nodes[i].outputs) {
        if (IsKept(id)) continue;
        const std::vector<int32_t>& readers = edit_.readers(id);
        const auto reader =
            std::lower_bound(readers.begin(), readers.end(), static_cast<int32_t>(first_backward_));
        if (reader == readers.end()) continue;
        wanted[Index(id)] = true;
        first_reader = std::min(first_reader, Index(*reader));
      }
    }
    if (first_reader == graph_.nodes.size()) return;

    // Their producers, back to values that are kept.
    std::vector<size_t> again;
    for (size_t k = nodes.size(); k-- > 0;) {
      const Node& node = graph_.nodes[nodes[k]];
      const bool needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](ValueId id) { return wanted[Index(id)]; });
      if (!needed) continue;
      again.push_back(nodes[k]);
      for (const ValueId id : node.inputs) {
        if (id != kNoValue && !IsKept(id)) wanted[Index(id)] = true;
      }
    }
    std::reverse(again.begin(), again.end());
    for (const size_t i : again) before_[first_reader].push_back(Copy(graph_.nodes[i]));
    for (const size_t i : again) ReadCopies(graph_.nodes[i]);
  }

  Node Copy(const Node& node) {
    Node copy = node;
    for (ValueId& id : copy.inputs) {
      if (id != kNoValue && copy_[Index(id)] != kNoValue && !IsKept(id)) id = copy_[Index(id)];
    }
    for (ValueId& id : copy.outputs) {
      const Value& value = graph_.value(id);
      const ValueId again = edit_.NewValue(absl::StrCat("again.", value.name), value.type);
      copy_[Index(id)] = again;
      id = again;
    }
    return copy;
  }

  // Makes backward nodes read the copies of `node`'s results, unless the original is kept anyway.
  void ReadCopies(const Node& node) {
    for (const ValueId id : node.outputs) {
      if (IsKept(id)) continue;
      for (const int32_t reader : edit_.readers(id)) {
        if (Index(reader) < first_backward_) continue;
        std::vector<ValueId>& inputs = inputs_[Index(reader)];
        std::replace(inputs.begin(), inputs.end(), id, copy_[Index(id)]);
      }
    }
  }

  const Graph graph_;
  GraphEdit edit_;
  size_t first_backward_ = 0;
  std::vector<int64_t> layer_;                       // indexed by node; -1: in no layer
  std::map<int64_t, std::vector<size_t>> nodes_of_;  // layer -> its forward nodes
  std::vector<ValueId> copy_;                        // indexed by ValueId: its recomputed copy
  std::vector<std::vector<ValueId>> inputs_;         // indexed by node: its inputs after the pass
  std::vector<std::vector<Node>> before_;            // indexed by node: copies inserted before it
};

}  // namespace

absl::StatusOr<Graph> RecomputeBlocks(Graph graph, const OpRegistry& /*registry*/) {
  return Recomputation(std::move(graph)).Run();
}

}  // namespace plumb
