// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/node_cost.h"

#include "absl/container/flat_hash_set.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

int64_t OperandBytes(const Graph& graph, const Node& node) {
  absl::flat_hash_set<ValueId> seen;
  int64_t bytes = 0;
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && seen.insert(id).second) bytes += graph.value(id).type.bytes();
  }
  for (const ValueId id : node.outputs) bytes += graph.value(id).type.bytes();
  for (const auto& [out, in] : node.op->updates) {
    bytes -= graph.value(node.outputs[static_cast<size_t>(out)]).type.bytes();
  }
  return bytes;
}

double Flops(const Graph& graph, const Node& node) {
  if (node.op->flops == nullptr) return 0;
  return node.op->flops({TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attrs});
}

}  // namespace

std::vector<NodeTime> NodeCosts(const Graph& graph) {
  std::vector<NodeTime> costs;
  costs.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    NodeTime cost;
    cost.op = node.op->name;
    if (!node.outputs.empty()) cost.name = graph.value(node.outputs[0]).name;
    cost.flops = Flops(graph, node);
    cost.bytes = OperandBytes(graph, node);
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace plumb
