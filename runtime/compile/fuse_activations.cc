// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

class ActivationFusion {
 public:
  ActivationFusion(Graph graph, const OpRegistry& registry)
      : edit_(std::move(graph)),
        matmul_act_(registry.Find("matmul_act")),
        matmul_act_grad_(registry.Find("matmul_act_grad")),
        mul_(registry.Find("mul")) {}

  Graph Run() && {
    for (size_t i = 0; i < edit_.node_count(); ++i) {
      if (edit_.node(i).op->name == "act") Fuse(i);
    }
    return std::move(edit_).Finish();
  }

 private:
  // Returns the position of the product that computes `id`, if it can be fused, else -1.
  int32_t FindProduct(ValueId id) const {
    const int32_t producer = edit_.graph().value(id).producer;
    if (producer < 0 || edit_.IsEdited(static_cast<size_t>(producer)) ||
        !IsPlainProduct(edit_, edit_.node(static_cast<size_t>(producer)))) {
      return -1;
    }
    return producer;
  }

  // Returns true if the node at `reader` uses `pre` only for the derivative of the activation.
  bool WantsDerivative(size_t reader, ValueId pre, const std::string& kind) const {
    const Node& node = edit_.node(reader);
    return node.op->name == "act_grad" && node.inputs[0] == pre && node.inputs[1] != pre &&
           node.attrs.GetString("kind") == kind;
  }

  // Replaces the product by the fused node, which needs only the product's operands. It stores the
  // derivative for the gradients instead of the activation's argument.
  void Fuse(size_t i) {
    const Node& act = edit_.node(i);
    const ValueId pre = act.inputs[0];
    const std::string kind = act.attrs.GetString("kind");
    const int32_t at = FindProduct(pre);
    if (at < 0 || edit_.IsOutput(pre)) return;
    std::vector<size_t> gradients;
    for (const int32_t reader : edit_.readers(pre)) {
      if (static_cast<size_t>(reader) == i) continue;
      if (!WantsDerivative(static_cast<size_t>(reader), pre, kind)) return;
      gradients.push_back(static_cast<size_t>(reader));
    }
    Node fused = edit_.node(static_cast<size_t>(at));
    fused.op = matmul_act_;
    fused.outputs = {act.outputs[0]};
    fused.attrs.Set("kind", kind);
    fused.attrs.Set("keep", !gradients.empty());
    if (!gradients.empty()) {
      const Value& y = edit_.graph().value(act.outputs[0]);
      const ValueId derivative = edit_.NewValue(absl::StrCat(y.name, ".derivative"), y.type);
      fused.outputs.push_back(derivative);
      for (const size_t gradient : gradients) FuseGradient(gradient, derivative);
    }
    edit_.Drop(i);
    edit_.Replace(static_cast<size_t>(at), {std::move(fused)});
  }

  // Replaces the activation's gradient, not the product: the nodes in between (the weight's
  // gradient, the last reader of the hidden values) free memory first, and the derivative may be
  // overwritten.
  void FuseGradient(size_t i, ValueId derivative) {
    const Node& grad = edit_.node(i);
    const ValueId dy = grad.inputs[1];
    const int32_t at = FindProduct(dy);
    if (at >= 0 && edit_.IsReadOnceBy(dy, i)) {
      const Node& product = edit_.node(static_cast<size_t>(at));
      const bool has_bias = product.inputs.size() > 2 && product.inputs[2] != kNoValue;
      if (!has_bias && edit_.MayMoveLater(product)) {
        edit_.Drop(static_cast<size_t>(at));
        edit_.Replace(i, {{matmul_act_grad_,
                           {product.inputs[0], product.inputs[1], derivative},
                           grad.outputs,
                           product.attrs}});
        return;
      }
    }
    edit_.Replace(i, {{mul_, {dy, derivative}, grad.outputs, {}}});
  }

  GraphEdit edit_;
  const OpDef* const matmul_act_;
  const OpDef* const matmul_act_grad_;
  const OpDef* const mul_;
};

}  // namespace

absl::StatusOr<Graph> FuseActivations(Graph graph, const OpRegistry& registry) {
  return ActivationFusion(std::move(graph), registry).Run();
}

}  // namespace plumb
