// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// norm_grad's operand that is added to its first output; absent until something is fused.
constexpr size_t kDsum = 4;

class ResidualNormFusion {
 public:
  ResidualNormFusion(Graph graph, const OpDef* add_norm)
      : graph_(std::move(graph)),
        add_norm_(add_norm),
        readers_(FindReaders(graph_)),
        is_output_(OutputValues(graph_)),
        keep_(graph_.nodes.size(), true) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!IsPlainSum(graph_.nodes[i])) continue;
      FuseGradients(i);
      if (keep_[i]) FuseNorm(i);
    }
    return KeepNodes(std::move(graph_), keep_);
  }

 private:
  // Fuses a sum and the first norm that reads it. A plain sum adds its terms in order, like
  // add_norm, so the bits are the same. Other readers of the sum do not change.
  void FuseNorm(size_t sum_node) {
    const Node& sum = graph_.nodes[sum_node];
    if (sum.inputs.size() != 2) return;
    for (const int32_t reader : readers_[Index(sum.outputs[0])]) {
      Node& norm = graph_.nodes[Index(reader)];
      if (norm.op->name != "norm" || norm.inputs[0] != sum.outputs[0]) continue;
      // The norm moves to an earlier position: its parameters must be available there.
      const bool ready = std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [&](ValueId id) {
        return graph_.value(id).producer < static_cast<int32_t>(sum_node);
      });
      // The sum may reuse a term's memory, so the norm must not read that term.
      const bool reads_a_term = std::any_of(
          norm.inputs.begin() + 1, norm.inputs.end(),
          [&](ValueId id) { return std::count(sum.inputs.begin(), sum.inputs.end(), id) > 0; });
      const ValueId y = norm.outputs[0];
      if (!ready || reads_a_term || (readers_[Index(y)].empty() && !is_output_[Index(y)])) continue;

      Node fused = {add_norm_, sum.inputs, sum.outputs, norm.attrs};
      fused.inputs.insert(fused.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
      fused.outputs.insert(fused.outputs.end(), norm.outputs.begin(), norm.outputs.end());
      keep_[Index(reader)] = false;
      Put(std::move(fused), sum_node);
      return;
    }
  }

  // Removes a sum of gradients if the nodes that compute norms' gradients can accumulate them in
  // its order: one of the first two terms onto the other, then each further term.
  void FuseGradients(size_t sum_node) {
    const Node& sum = graph_.nodes[sum_node];
    const std::vector<ValueId> terms = sum.inputs;
    if (terms.size() < 2) return;
    for (const size_t first : {size_t{1}, size_t{0}}) {
      std::vector<ValueId> order = {terms[1 - first], terms[first]};
      order.insert(order.end(), terms.begin() + 2, terms.end());
      bool fits = true;
      for (size_t t = 1; t < order.size(); ++t) {
        fits = fits && CanAdd(order[t - 1], order[t], terms);
      }
      if (!fits) continue;
      for (size_t t = 1; t < order.size(); ++t) {
        Node& grad = graph_.nodes[Index(graph_.value(order[t]).producer)];
        grad.inputs[kDsum] = order[t - 1];
      }
      // The last of these nodes computes the sum.
      const int32_t last = graph_.value(order.back()).producer;
      const ValueId total = sum.outputs[0];
      graph_.nodes[Index(last)].outputs[0] = total;
      graph_.values[Index(total)].producer = last;
      keep_[sum_node] = false;
      return;
    }
  }

  // Returns true if `term` is a norm's gradient that only the sum of `terms` reads, and its node
  // can add `before` to it because `before` is available by then.
  bool CanAdd(ValueId before, ValueId term, const std::vector<ValueId>& terms) const {
    const int32_t producer = graph_.value(term).producer;
    if (producer < 0 || is_output_[Index(term)] || readers_[Index(term)].size() != 1 ||
        std::count(terms.begin(), terms.end(), term) != 1) {
      return false;
    }
    const Node& grad = graph_.nodes[Index(producer)];
    return grad.op->name == "norm_grad" && grad.outputs[0] == term &&
           grad.inputs[kDsum] == kNoValue && graph_.value(before).producer < producer;
  }

  void Put(Node node, size_t index) {
    for (const ValueId id : node.outputs) {
      graph_.values[Index(id)].producer = static_cast<int32_t>(index);
    }
    graph_.nodes[index] = std::move(node);
  }

  Graph graph_;
  const OpDef* const add_norm_;
  std::vector<std::vector<int32_t>> readers_;  // indexed by ValueId: the nodes, in order
  std::vector<bool> is_output_;
  std::vector<bool> keep_;  // indexed by node
};

}  // namespace

absl::StatusOr<Graph> FuseResidualNorms(Graph graph, const OpRegistry& registry) {
  const OpDef* const add_norm = registry.Find("add_norm");
  if (add_norm == nullptr) return graph;
  return ResidualNormFusion(std::move(graph), add_norm).Run();
}

}  // namespace plumb
