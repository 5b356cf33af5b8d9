// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

constexpr size_t kDy = 1, kAcc = 2;  // operands of embedding_grad

// Returns true for an embedding's gradient that only the sum at `reader` reads, and to which
// nothing is added yet.
bool IsGradientOf(const GraphEdit& edit, ValueId term, size_t reader) {
  const int32_t producer = edit.graph().value(term).producer;
  if (producer < 0 || !edit.IsReadOnceBy(term, reader)) return false;
  const Node& node = edit.node(static_cast<size_t>(producer));
  const bool has_acc = node.inputs.size() > kAcc && node.inputs[kAcc] != kNoValue;
  return node.op->name == "embedding_grad" && !has_acc && edit.MayMoveLater(node);
}

}  // namespace

// Moves the gradient to the position of the sum, where all terms exist; ids and dy are kept until
// then.
absl::StatusOr<Graph> AccumulateEmbeddings(Graph graph, const OpRegistry& registry) {
  const OpDef* const combine = registry.Find("combine");
  GraphEdit edit(std::move(graph));
  for (size_t i = 0; i < edit.node_count(); ++i) {
    const Node& sum = edit.node(i);
    if (!IsPlainSum(sum) || sum.inputs.size() < 2) continue;
    std::vector<ValueId> gradients, others;
    for (const ValueId term : sum.inputs) {
      (IsGradientOf(edit, term, i) ? gradients : others).push_back(term);
    }
    if (gradients.empty()) continue;

    std::vector<Node> nodes;
    const TensorType type = edit.graph().value(sum.outputs[0]).type;
    ValueId total;
    if (others.empty()) {  // a table that is read twice
      total = gradients[0];
      gradients.erase(gradients.begin());
    } else if (others.size() == 1) {
      total = others[0];
    } else {
      total = edit.NewValue(absl::StrCat(edit.graph().value(sum.outputs[0]).name, ".rest"), type);
      nodes.push_back(
          {combine,
           others,
           {total},
           Attrs({{"coefs", std::vector<double>(others.size(), 1.0)}, {"constant", 0.0}})});
    }
    for (const ValueId gradient : gradients) {
      const size_t producer = static_cast<size_t>(edit.graph().value(gradient).producer);
      Node node = edit.node(producer);
      node.inputs = {node.inputs[0], node.inputs[kDy], total};
      total = gradient == gradients.back() ? sum.outputs[0] : gradient;
      node.outputs = {total};
      edit.Drop(producer);
      nodes.push_back(std::move(node));
    }
    edit.Replace(i, std::move(nodes));
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
