// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// Longer sums are not faster (every term is read once either way), and keep all terms alive that a
// running sum would have freed.
constexpr size_t kMaxTerms = 8;

// Arguments of combine: sum_i coefs[i] * terms[i] + constant.
struct Sum {
  std::vector<ValueId> terms;
  std::vector<double> coefs;
  double constant = 0;

  void Add(ValueId term, double coef) {
    const auto at = std::find(terms.begin(), terms.end(), term);
    if (at != terms.end()) {
      coefs[static_cast<size_t>(at - terms.begin())] += coef;
    } else {
      terms.push_back(term);
      coefs.push_back(coef);
    }
  }

  bool IsIdentity() const { return terms.size() == 1 && coefs[0] == 1 && constant == 0; }
};

bool IsCombine(const Node& node) { return node.op->name == "combine"; }

Sum MakeSum(const Node& node) {
  Sum sum;
  const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
  for (size_t i = 0; i < node.inputs.size(); ++i) sum.Add(node.inputs[i], coefs[i]);
  sum.constant = node.attrs.GetDouble("constant", 0);
  return sum;
}

// One walk over the nodes. Readers are counted once at its start and only over-estimated
// afterwards, so it may miss a merge that it has made possible; the next walk finds it.
class Walk {
 public:
  explicit Walk(Graph* graph)
      : graph_(*graph),
        overwritten_(OverwrittenValues(*graph)),
        is_output_(OutputValues(*graph)),
        state_(StateOfValues(*graph)),
        replacement_(graph->values.size()),
        keep_(graph->nodes.size(), true) {
    std::iota(replacement_.begin(), replacement_.end(), 0);
    for (const auto& readers : FindReaders(*graph)) readers_.push_back(readers.size());
  }

  // Merges sums. Returns true if a node was dropped.
  bool Run() {
    bool changed = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      for (ValueId& id : node.inputs) {
        if (id != kNoValue) id = replacement_[Index(id)];
      }
      // After differentiation, which it stops, it equals its input.
      if (node.op->name == "stop" && Replace(node.outputs[0], node.inputs[0])) {
        keep_[i] = false;
        changed = true;
      }
      if (!IsCombine(node)) continue;
      const size_t terms_before = node.inputs.size();
      Sum sum = MakeSum(node);
      bool merged = sum.terms.size() != terms_before;
      while (MergeOneTerm(&sum)) {
        merged = true;
        changed = true;
      }
      if (merged) {
        node.inputs = sum.terms;
        node.attrs = Attrs({{"coefs", sum.coefs}, {"constant", sum.constant}});
      }
      if (sum.IsIdentity() && Replace(node.outputs[0], sum.terms[0])) {
        keep_[i] = false;
        changed = true;
      }
    }
    for (GraphOutput& output : graph_.outputs) output.value = replacement_[Index(output.value)];
    return changed;
  }

  const std::vector<bool>& keep() const { return keep_; }

 private:
  // Replaces the first term that is a sum without other readers by the terms of that sum.
  bool MergeOneTerm(Sum* sum) {
    for (size_t t = 0; t < sum->terms.size(); ++t) {
      const ValueId term = sum->terms[t];
      const int32_t producer = graph_.value(term).producer;
      if (producer < 0 || !IsCombine(graph_.nodes[Index(producer)]) || is_output_[Index(term)] ||
          readers_[Index(term)] != 1) {
        continue;
      }
      const Sum inner = MakeSum(graph_.nodes[Index(producer)]);
      // A term of the inner sum may be overwritten between the inner and the outer sum.
      if (std::any_of(inner.terms.begin(), inner.terms.end(),
                      [this](ValueId id) { return overwritten_[Index(id)]; })) {
        continue;
      }
      Sum merged;
      for (size_t i = 0; i < sum->terms.size(); ++i) {
        if (i != t) {
          merged.Add(sum->terms[i], sum->coefs[i]);
          continue;
        }
        for (size_t j = 0; j < inner.terms.size(); ++j) {
          merged.Add(inner.terms[j], sum->coefs[t] * inner.coefs[j]);
        }
      }
      merged.constant = sum->constant + sum->coefs[t] * inner.constant;
      if (merged.terms.size() > std::max(kMaxTerms, sum->terms.size())) continue;
      keep_[Index(producer)] = false;
      *sum = std::move(merged);
      return true;
    }
    return false;
  }

  // Makes all readers of `copy` read `original`. Returns false if the copy is needed: the original
  // changes later, or an output must have memory of its own.
  bool Replace(ValueId copy, ValueId original) {
    if (overwritten_[Index(original)]) return false;
    if (is_output_[Index(copy)]) {
      const bool is_external = graph_.value(original).kind != ValueKind::kComputed ||
                               state_[Index(original)] != kNoValue || is_output_[Index(original)];
      if (is_external) return false;
      is_output_[Index(original)] = true;
    }
    replacement_[Index(copy)] = original;
    readers_[Index(original)] += readers_[Index(copy)] - 1;
    return true;
  }

  Graph& graph_;
  std::vector<size_t> readers_;  // indexed by ValueId: upper bound of the nodes that read it
  std::vector<bool> overwritten_;
  std::vector<bool> is_output_;
  std::vector<ValueId> state_;
  std::vector<ValueId> replacement_;
  std::vector<bool> keep_;  // indexed by node
};

}  // namespace

absl::StatusOr<Graph> MergeCombines(Graph graph, const OpRegistry& /*registry*/) {
  while (true) {
    Walk walk(&graph);
    if (!walk.Run()) return graph;
    graph = KeepNodes(std::move(graph), walk.keep());
  }
}

}  // namespace plumb
