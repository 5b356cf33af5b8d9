#include "runtime/compile/optimize.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

absl::StatusOr<Graph> MergeCommonValues(const Graph& graph, const OpRegistry& /*registry*/) {
  Graph merged = graph;
  std::vector<bool> keep(graph.nodes.size(), true);
  std::vector<ValueId> replacement(graph.values.size());
  std::iota(replacement.begin(), replacement.end(), 0);
  absl::flat_hash_map<std::string, size_t>
      first_like;  // what a node computes -> the first that does
  for (size_t i = 0; i < merged.nodes.size(); ++i) {
    Node& node = merged.nodes[i];
    for (ValueId& id : node.inputs) {
      if (id != kNoValue) id = replacement[static_cast<size_t>(id)];
    }
    if (!node.op->updates.empty()) continue;
    const std::string key = absl::StrCat(node.op->name, "(", absl::StrJoin(node.inputs, ","), ")",
                                         node.attrs.ToString());
    const auto [at, is_first] = first_like.emplace(key, i);
    if (is_first) continue;
    keep[i] = false;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      replacement[static_cast<size_t>(node.outputs[k])] = merged.nodes[at->second].outputs[k];
    }
  }
  for (GraphOutput& output : merged.outputs) {
    output.value = replacement[static_cast<size_t>(output.value)];
  }
  return KeepNodes(merged, keep);
}

absl::StatusOr<Graph> DropDeadValues(const Graph& graph, const OpRegistry& /*registry*/) {
  std::vector<bool> needed = OutputValues(graph);
  const auto is_needed = [&needed](ValueId id) { return needed[static_cast<size_t>(id)]; };
  GraphEdit edit(graph);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    // A state that is written is seen by the next run, whoever reads it in this one.
    if (node.op->updates.empty() &&
        std::none_of(node.outputs.begin(), node.outputs.end(), is_needed)) {
      edit.Drop(i);
      continue;
    }
    if (node.op->name == "matmul_act" && node.outputs.size() == 2 && !is_needed(node.outputs[1])) {
      Node without_slope = node;
      without_slope.outputs.pop_back();
      without_slope.attrs.Set("keep", false);
      edit.Replace(i, {std::move(without_slope)});
    }
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) needed[static_cast<size_t>(id)] = true;
    }
  }
  return std::move(edit).Finish();
}

const std::vector<Pass>& AllPasses() {
  static const std::vector<Pass>* const passes = new std::vector<Pass>{
      {"merge-combines", "sums of sums become one sum; sums of one term are that term",
       MergeCombines},
      {"common-values", "nodes that compute the same become one", MergeCommonValues},
      {"accumulate-embeddings", "an embedding's gradient is added to what it is summed with, there",
       AccumulateEmbeddings},
      {"fuse-activations", "a product and its activation become one node, and so do gradients",
       FuseActivations},
      {"sum-products", "products are added to what they are summed with as they are computed",
       SumProducts},
      {"share-operands", "products of one left operand with several parameters become one node",
       ShareOperands},
      {"recompute-blocks", "what only the backward pass keeps of a layer is computed again there",
       RecomputeBlocks, &OptimizeOptions::recompute_blocks},
      {"fuse-residual-norms", "a sum and the norm of it become one node, and so do their gradients",
       FuseResidualNorms},
      {"dead-values", "nodes, and kept values of nodes, that nothing needs are dropped",
       DropDeadValues},
      {"gradient-norms", "the sum of each gradient's squares is taken where the gradient is made",
       GradientNorms, &OptimizeOptions::gradient_norms},
  };
  return *passes;
}

absl::StatusOr<Graph> Optimize(Graph graph, const OpRegistry& registry,
                               const OptimizeOptions& options) {
  std::vector<std::string> names;
  for (const Pass& pass : AllPasses()) names.push_back(pass.name);
  for (const std::string& name : options.disabled) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown pass \"", name, "\"", DidYouMean(name, names)));
    }
  }
  for (const Pass& pass : AllPasses()) {
    const auto& disabled = options.disabled;
    if (pass.option != nullptr && !(options.*pass.option)) continue;
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    PLUMB_ASSIGN_OR_RETURN(graph, pass.run(graph, registry));
    PLUMB_RETURN_IF_ERROR(Annotate(Verify(graph), absl::StrCat("after ", pass.name, ": ")));
  }
  return graph;
}

}  // namespace plumb
