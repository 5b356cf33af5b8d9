// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/rewrite.h"

#include <utility>

namespace plumb {

Graph KeepNodes(Graph graph, const std::vector<bool>& keep) {
  Graph kept;
  kept.values.reserve(graph.values.size());
  kept.nodes.reserve(graph.nodes.size());
  std::vector<int32_t> new_node(graph.nodes.size(), -1);
  int32_t nodes = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (keep[i]) new_node[i] = nodes++;
  }
  std::vector<ValueId> new_id(graph.values.size(), kNoValue);
  for (size_t id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (value.kind == ValueKind::kComputed) {
      if (value.producer >= 0) value.producer = new_node[Index(value.producer)];
      if (value.producer < 0) continue;
    }
    new_id[id] = static_cast<ValueId>(kept.values.size());
    kept.values.push_back(std::move(value));
  }
  const auto renumber = [&new_id](ValueId& id) {
    if (id != kNoValue) id = new_id[static_cast<size_t>(id)];
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep[i]) continue;
    Node& node = graph.nodes[i];
    for (ValueId& id : node.inputs) renumber(id);
    for (ValueId& id : node.outputs) renumber(id);
    kept.nodes.push_back(std::move(node));
  }
  kept.outputs = std::move(graph.outputs);
  for (GraphOutput& output : kept.outputs) renumber(output.value);
  return kept;
}

std::vector<ValueId> StateOfValues(const Graph& graph) {
  std::vector<ValueId> state(graph.values.size(), kNoValue);
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].kind == ValueKind::kState) state[id] = static_cast<ValueId>(id);
  }
  for (const Node& node : graph.nodes) {
    for (const auto& [out, in] : node.op->updates) {
      state[static_cast<size_t>(node.outputs[static_cast<size_t>(out)])] =
          state[static_cast<size_t>(node.inputs[static_cast<size_t>(in)])];
    }
  }
  return state;
}

std::vector<std::vector<int32_t>> ReadersOf(const Graph& graph) {
  std::vector<std::vector<int32_t>> readers(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int32_t position = static_cast<int32_t>(i);
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == kNoValue) continue;
      std::vector<int32_t>& known = readers[Index(id)];
      if (known.empty() || known.back() != position) known.push_back(position);
    }
  }
  return readers;
}

std::vector<bool> OverwrittenValues(const Graph& graph) {
  std::vector<bool> overwritten(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (const auto& [out, in] : node.op->updates) {
      overwritten[static_cast<size_t>(node.inputs[static_cast<size_t>(in)])] = true;
    }
  }
  return overwritten;
}

std::vector<bool> OutputValues(const Graph& graph) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) {
    is_output[static_cast<size_t>(output.value)] = true;
  }
  return is_output;
}

}  // namespace plumb
