// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

enum class Need : char { kNothing, kLastToken, kAll };  // in increasing order

// Returns true if last_token accepts the type and drops some of it.
bool HasTokens(const TensorType& type) {
  const int rank = type.dtype == DType::kI32 ? 2 : 3;
  return type.shape.rank() == rank && type.shape[1] > 1;
}

TensorType LastTokenType(const TensorType& type) {
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[1] = 1;
  return {type.dtype, Shape(dims)};
}

bool IsLastToken(const Node& node) { return node.op->name == "last_token"; }

// A node that computes the last token only.
struct Narrowed {
  std::vector<size_t> inputs;       // inputs replaced by their last token; empty: not narrowed
  std::vector<TensorType> outputs;  // types of the outputs then
};

// Walks backwards and finds which tokens of each value are needed, and from these the nodes that
// can be narrowed. A value that one reader needs in full is computed in full, and its last token is
// copied for the others, so nothing is computed twice.
class Needs {
 public:
  explicit Needs(const Graph& graph)
      : graph_(graph),
        needs_(graph.values.size(), Need::kNothing),
        is_dead_(graph.nodes.size(), false),
        narrowed_(graph.nodes.size()) {
    for (const GraphOutput& output : graph.outputs) Raise(output.value, Need::kAll);
    for (size_t i = graph.nodes.size(); i-- > 0;) Visit(i);
  }

  // Returns true if the node's results are not needed.
  bool is_dead(size_t node) const { return is_dead_[node]; }
  const Narrowed& narrowed(size_t node) const { return narrowed_[node]; }

 private:
  Need need(ValueId id) const { return needs_[Index(id)]; }
  void Raise(ValueId id, Need to) {
    if (id != kNoValue) needs_[Index(id)] = std::max(need(id), to);
  }

  void Visit(size_t i) {
    const Node& node = graph_.nodes[i];
    const bool needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [this](ValueId id) { return need(id) != Need::kNothing; });
    if (!needed && node.op->updates.empty()) {
      is_dead_[i] = true;
      return;
    }
    if (IsLastToken(node) && HasTokens(graph_.value(node.inputs[0]).type)) {
      Raise(node.inputs[0], Need::kLastToken);
      return;
    }
    narrowed_[i] = Narrow(node);
    std::vector<Need> wanted(node.inputs.size(), Need::kAll);
    for (const size_t k : narrowed_[i].inputs) wanted[k] = Need::kLastToken;
    for (size_t k = 0; k < wanted.size(); ++k) Raise(node.inputs[k], wanted[k]);
  }

  // Returns no inputs unless all outputs that become narrower are needed for the last token only.
  Narrowed Narrow(const Node& node) const {
    if (node.op->token_wise == nullptr) return {};
    std::vector<const TensorType*> types = GetTypes(graph_, node.inputs);
    std::vector<size_t> inputs = node.op->token_wise(OpTypes{types, {}, node.attrs});
    std::vector<TensorType> narrow;
    narrow.reserve(inputs.size());  // `types` points into it
    for (const size_t k : inputs) {
      if (!HasTokens(*types[k])) return {};
      types[k] = &narrow.emplace_back(LastTokenType(*types[k]));
    }
    auto outputs = node.op->infer(OpTypes{types, {}, node.attrs});
    if (!outputs.ok()) return {};
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const TensorType& full = graph_.value(node.outputs[k]).type;
      if ((*outputs)[k] == full) continue;
      if (need(node.outputs[k]) == Need::kAll || !HasTokens(full) ||
          (*outputs)[k] != LastTokenType(full)) {
        return {};
      }
    }
    return {std::move(inputs), *std::move(outputs)};
  }

  const Graph& graph_;
  std::vector<Need> needs_;         // indexed by ValueId
  std::vector<bool> is_dead_;       // indexed by node
  std::vector<Narrowed> narrowed_;  // indexed by node
};

// Returns `graph` with the types of the outputs of narrowed nodes.
Graph NarrowTypes(Graph graph, const Needs& needs) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Narrowed& narrowed = needs.narrowed(i);
    for (size_t k = 0; k < narrowed.outputs.size(); ++k) {
      graph.values[static_cast<size_t>(graph.nodes[i].outputs[k])].type = narrowed.outputs[k];
    }
  }
  return graph;
}

}  // namespace

absl::StatusOr<Graph> NarrowToLastToken(Graph graph, const OpRegistry& registry) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), IsLastToken)) return graph;
  const OpDef* const last_token = registry.Find("last_token");
  const Needs needs(graph);
  GraphEdit edit(NarrowTypes(graph, needs));
  const auto type = [&edit](ValueId id) { return edit.graph().value(id).type; };
  absl::flat_hash_map<ValueId, ValueId> replacement;  // last tokens of narrowed values
  absl::flat_hash_map<ValueId, ValueId> last;         // last tokens of values computed in full
  for (size_t i = 0; i < edit.node_count(); ++i) {
    if (needs.is_dead(i)) {
      edit.Drop(i);
      continue;
    }
    Node node = edit.node(i);
    for (ValueId& id : node.inputs) {
      if (const auto it = replacement.find(id); it != replacement.end()) id = it->second;
    }
    // A last_token that is an output stays, as a copy: outputs have memory of their own.
    if (IsLastToken(node) && !HasTokens(type(node.inputs[0])) && !edit.IsOutput(node.outputs[0])) {
      replacement[node.outputs[0]] = node.inputs[0];
      edit.Drop(i);
      continue;
    }
    std::vector<Node> nodes;
    for (const size_t k : needs.narrowed(i).inputs) {
      ValueId& id = node.inputs[k];
      if (!HasTokens(type(id))) continue;
      const auto [it, is_new] = last.try_emplace(id, kNoValue);
      if (is_new) {
        it->second = edit.NewValue(absl::StrCat(edit.graph().value(id).name, ".last_token"),
                                   LastTokenType(type(id)));
        nodes.push_back({last_token, {id}, {it->second}, {}});
      }
      id = it->second;
    }
    nodes.push_back(std::move(node));
    edit.Replace(i, std::move(nodes));
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
