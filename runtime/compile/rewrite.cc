// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/rewrite.h"

namespace plumb {

std::vector<const TensorType*> GetTypes(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<const TensorType*> types;
  for (const ValueId id : ids) types.push_back(id == kNoValue ? nullptr : &graph.value(id).type);
  return types;
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

std::vector<std::vector<int32_t>> FindReaders(const Graph& graph) {
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
