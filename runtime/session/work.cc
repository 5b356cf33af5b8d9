// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/work.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Returns the FLOPs of x [rows, in] times a weight of in * out elements.
double LinearFlops(const Graph& graph, const Node& node) {
  const Shape& x = graph.value(node.inputs[0]).type.shape;
  const Shape& w = graph.value(node.inputs[1]).type.shape;
  return 2 * static_cast<double>(x.rows()) * static_cast<double>(w.num_elements());
}

// Returns the FLOPs of scores and context: q [batch, queries, n_head * head_dim] attends to k
// [batch, seq, ..], or to the keys of a window.
double AttentionFlops(const Graph& graph, const Node& node) {
  const Shape& q = graph.value(node.inputs[0]).type.shape;
  const Shape& k = graph.value(node.inputs[1]).type.shape;
  int64_t keys = k[1];
  const bool is_causal = node.op->name != "attention" || node.inputs.size() <= 4;  // no lengths
  if (node.attrs.Has("window")) {
    const int64_t window = node.attrs.GetInt("window");
    keys = std::min(keys, is_causal ? window : 2 * window - 1);
  }
  return 4 * static_cast<double>(q.num_elements()) * static_cast<double>(keys);
}

bool IsOfExperts(const Node& node) {
  return node.op->name == "expert_matmul" || node.op->name == "expert_matmul_int8";
}

// Returns the FLOPs of each row of x times the matrix of its expert, [experts, out, in] or int8.
double ExpertFlops(const Graph& graph, const Node& node) {
  const Shape& x = graph.value(node.inputs[0]).type.shape;
  const Shape& y = graph.value(node.outputs[0]).type.shape;
  return 2 * static_cast<double>(x.num_elements()) * static_cast<double>(y.last());
}

// Returns the bytes of a parameter that the node reads: all, or of at most one expert per row.
int64_t BytesRead(const Graph& graph, const Node& node, ValueId parameter) {
  const int64_t bytes = graph.value(parameter).type.bytes();
  if (!IsOfExperts(node)) return bytes;
  const int64_t experts = graph.value(node.inputs[2]).type.num_elements() - 1;
  const int64_t rows = graph.value(node.inputs[0]).type.shape.rows();
  return bytes / experts * std::min(experts, rows);
}

}  // namespace

absl::StatusOr<ModelWork> CountWork(const ModelContext& context, const BuildOptions& options) {
  // The graph as built, without dead nodes. No other pass changes the counts.
  PLUMB_ASSIGN_OR_RETURN(Graph graph,
                         BuildForward(context.model, context.parameters, *context.ops, options));
  PLUMB_ASSIGN_OR_RETURN(graph,
                         Optimize(std::move(graph), *context.ops, OnlyPasses({"last-token"})));
  ModelWork work;
  absl::flat_hash_set<ValueId> read;
  for (const Node& node : graph.nodes) {
    const std::string& op = node.op->name;
    if (op == "matmul") work.forward_flops += LinearFlops(graph, node);
    if (IsOfExperts(node)) work.forward_flops += ExpertFlops(graph, node);
    if (op == "attention" || absl::StartsWith(op, "attention_cached")) {
      work.forward_flops += AttentionFlops(graph, node);
    }
    if (op == "embedding" || op == "embedding_int8") continue;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || graph.value(id).kind != ValueKind::kParameter) continue;
      if (read.insert(id).second) work.weight_bytes += BytesRead(graph, node, id);
    }
  }
  return work;
}

}  // namespace plumb
