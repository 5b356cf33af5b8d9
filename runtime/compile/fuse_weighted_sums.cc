// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// A sum in the form of weighted_sum's operands: pairs of factors, the second of which may be
// absent.
struct Pairs {
  std::vector<ValueId> factors;
  std::vector<double> coefs;
  std::vector<size_t> products;  // nodes that become terms

  void Add(ValueId a, ValueId b, double coef) {
    factors.push_back(a);
    factors.push_back(b);
    coefs.push_back(coef);
  }
};

// The product that only the node at `reader` reads, and that may as well be computed there; else
// the number of nodes.
size_t ProductOf(const GraphEdit& edit, ValueId term, size_t reader) {
  const int32_t producer = edit.graph().value(term).producer;
  if (producer < 0 || !edit.IsReadOnceBy(term, reader)) return edit.node_count();
  const size_t at = Index(producer);
  const Node& node = edit.node(at);
  const bool is_product = node.op->name == "mul" && edit.MayMoveLater(node);
  return is_product ? at : edit.node_count();
}

Pairs PairsOf(const GraphEdit& edit, size_t position) {
  const Node& node = edit.node(position);
  const bool weighted = node.op->name == "weighted_sum";
  const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
  Pairs pairs;
  for (size_t i = 0; i < coefs.size(); ++i) {
    const ValueId a = node.inputs[weighted ? 2 * i : i];
    ValueId b = kNoValue;
    if (weighted && 2 * i + 1 < node.inputs.size()) b = node.inputs[2 * i + 1];
    const size_t product = b == kNoValue ? ProductOf(edit, a, position) : edit.node_count();
    if (product == edit.node_count()) {
      pairs.Add(a, b, coefs[i]);
      continue;
    }
    pairs.products.push_back(product);
    pairs.Add(edit.node(product).inputs[0], edit.node(product).inputs[1], coefs[i]);
  }
  return pairs;
}

}  // namespace

absl::StatusOr<Graph> FuseWeightedSums(const Graph& graph, const OpRegistry& registry) {
  const OpDef* const weighted_sum = registry.Find("weighted_sum");
  if (weighted_sum == nullptr) return graph;  // there are no such products either
  GraphEdit edit(graph);
  for (size_t i = 0; i < edit.node_count(); ++i) {
    const Node& node = edit.node(i);
    if (node.op->name != "combine" && node.op->name != "weighted_sum") continue;
    Pairs pairs = PairsOf(edit, i);
    // With one product alone the sum reads as much, and other passes know it better.
    if (pairs.products.size() < 2) continue;
    for (const size_t product : pairs.products) edit.Drop(product);
    Node fused;
    fused.op = weighted_sum;
    fused.inputs = std::move(pairs.factors);
    fused.outputs = node.outputs;
    fused.attrs = Attrs(
        {{"coefs", std::move(pairs.coefs)}, {"constant", node.attrs.GetDouble("constant", 0)}});
    edit.Replace(i, {std::move(fused)});
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
