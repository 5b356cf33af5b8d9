#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

bool HasBias(const Node& node) { return node.inputs.size() > 2 && node.inputs[2] != kNoValue; }

// A product with a parameter, as a linear layer's: x w^T + bias.
bool IsLinear(const GraphEdit& edit, const Node& node) {
  return IsPlainProduct(edit, node) && !node.attrs.GetBool("transpose_a", false) &&
         node.attrs.GetBool("transpose_b", false) &&
         edit.graph().value(node.inputs[1]).kind == ValueKind::kParameter;
}

// The positions of the linear layers that read what the one at `first` does, from there on. What
// comes after other heavy work is left where it is: its result would have to be kept until then.
std::vector<size_t> LayersLike(const GraphEdit& edit, size_t first) {
  std::vector<size_t> like = {first};
  const Node& one = edit.node(first);
  for (size_t i = first + 1; i < edit.node_count(); ++i) {
    const Node& node = edit.node(i);
    if (IsLinear(edit, node) && node.inputs[0] == one.inputs[0] && !edit.IsEdited(i)) {
      // It moves forward: its bias has to be there by then.
      const bool ready = !HasBias(node) ||
                         edit.graph().value(node.inputs[2]).producer < static_cast<int32_t>(first);
      if (ready) like.push_back(i);
    } else if (node.op->flops != nullptr) {
      break;
    }
  }
  return like;
}

}  // namespace

absl::StatusOr<Graph> ShareOperands(const Graph& graph, const OpRegistry& registry) {
  const OpDef* const matmul_shared = registry.Find("matmul_shared");
  GraphEdit edit(graph);
  for (size_t i = 0; i < edit.node_count(); ++i) {
    if (edit.IsEdited(i) || !IsLinear(edit, edit.node(i))) continue;
    const std::vector<size_t> layers = LayersLike(edit, i);
    if (layers.size() < 2) continue;
    Node shared = {matmul_shared, {edit.node(i).inputs[0]}, {}, {}};
    shared.attrs.Set("transpose_b", true);
    shared.attrs.Set("count", static_cast<int64_t>(layers.size()));
    bool any_bias = false;
    for (const size_t at : layers) {
      shared.inputs.push_back(edit.node(at).inputs[1]);
      shared.outputs.push_back(edit.node(at).outputs[0]);
      any_bias = any_bias || HasBias(edit.node(at));
    }
    for (const size_t at : layers) {
      const Node& layer = edit.node(at);
      if (any_bias) shared.inputs.push_back(HasBias(layer) ? layer.inputs[2] : kNoValue);
      if (at != i) edit.Drop(at);
    }
    edit.Replace(i, {std::move(shared)});
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
