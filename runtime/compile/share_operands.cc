// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

constexpr size_t kMaxShared = 8;  // products; the limit of matmul_int8

// The operands of a product other than x: its weight, with scales if it is int8, and any bias.
struct Layer {
  std::vector<ValueId> weight;
  ValueId bias = kNoValue;
};

bool IsInt8(const Node& node) { return node.op->name == "matmul_int8"; }

Layer GetLayer(const Node& node) {
  const size_t bias = IsInt8(node) ? 3 : 2;
  Layer layer;
  layer.weight.assign(node.inputs.begin() + 1, node.inputs.begin() + static_cast<int64_t>(bias));
  if (node.inputs.size() > bias) layer.bias = node.inputs[bias];
  return layer;
}

// Returns true for a product with a parameter, as in a linear layer: x w^T + bias.
bool IsLinear(const GraphEdit& edit, const Node& node) {
  const bool product = IsInt8(node) ? node.attrs.GetDoubles("rows").size() == 1
                                    : IsPlainProduct(edit, node) &&
                                          !node.attrs.GetBool("transpose_a", false) &&
                                          node.attrs.GetBool("transpose_b", false);
  return product && edit.graph().value(node.inputs[1]).kind == ValueKind::kParameter;
}

// Returns the positions of the linear layers at or after `first` that read the same x as the one at
// `first`. Stops at other heavy nodes: the results would have to be kept until after these.
std::vector<size_t> LayersLike(const GraphEdit& edit, size_t first) {
  std::vector<size_t> like = {first};
  const Node& one = edit.node(first);
  for (size_t i = first + 1; i < edit.node_count(); ++i) {
    const Node& node = edit.node(i);
    if (IsLinear(edit, node) && node.op == one.op && node.inputs[0] == one.inputs[0] &&
        !edit.IsEdited(i)) {
      // It moves to an earlier position: its bias must be available there.
      const ValueId bias = GetLayer(node).bias;
      const bool ready =
          bias == kNoValue || edit.graph().value(bias).producer < static_cast<int32_t>(first);
      if (ready && like.size() < kMaxShared) like.push_back(i);
    } else if (node.op->flops != nullptr) {
      break;
    }
  }
  return like;
}

}  // namespace

absl::StatusOr<Graph> ShareOperands(Graph graph, const OpRegistry& registry) {
  const OpDef* const matmul_shared = registry.Find("matmul_shared");
  GraphEdit edit(std::move(graph));
  for (size_t i = 0; i < edit.node_count(); ++i) {
    if (edit.IsEdited(i) || !IsLinear(edit, edit.node(i))) continue;
    const std::vector<size_t> layers = LayersLike(edit, i);
    if (layers.size() < 2) continue;
    const bool int8 = IsInt8(edit.node(i));
    Node shared = {int8 ? edit.node(i).op : matmul_shared, {edit.node(i).inputs[0]}, {}, {}};
    std::vector<double> rows;  // rows of int8 matrices
    std::vector<ValueId> biases;
    bool any_bias = false;
    for (const size_t at : layers) {
      const Layer layer = GetLayer(edit.node(at));
      shared.inputs.insert(shared.inputs.end(), layer.weight.begin(), layer.weight.end());
      shared.outputs.push_back(edit.node(at).outputs[0]);
      if (int8) rows.push_back(edit.node(at).attrs.GetDoubles("rows")[0]);
      biases.push_back(layer.bias);
      any_bias = any_bias || layer.bias != kNoValue;
      if (at != i) edit.Drop(at);
    }
    if (any_bias) shared.inputs.insert(shared.inputs.end(), biases.begin(), biases.end());
    if (int8) {
      shared.attrs.Set("rows", std::move(rows));
    } else {
      shared.attrs.Set("transpose_b", true);
      shared.attrs.Set("count", static_cast<int64_t>(layers.size()));
    }
    edit.Replace(i, {std::move(shared)});
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
