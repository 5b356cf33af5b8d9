#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

class Fusion {
 public:
  Fusion(const Graph& graph, const OpRegistry& registry)
      : edit_(graph),
        matmul_act_(registry.Find("matmul_act")),
        matmul_act_grad_(registry.Find("matmul_act_grad")) {}

  Graph Run() && {
    for (size_t i = 0; i < edit_.node_count(); ++i) {
      if (edit_.node(i).op->name == "act") FuseActivation(i);
      if (edit_.node(i).op->name == "act_grad") FuseGradient(i);
    }
    return std::move(edit_).Finish();
  }

 private:
  // The position of the product that makes `id`, if it is to be had, else -1.
  int32_t ProductOf(ValueId id) const {
    const int32_t producer = edit_.graph().value(id).producer;
    if (producer < 0 || edit_.IsEdited(static_cast<size_t>(producer)) ||
        !IsPlainProduct(edit_, edit_.node(static_cast<size_t>(producer)))) {
      return -1;
    }
    return producer;
  }

  // Where the product was: the activation needs nothing else.
  void FuseActivation(size_t i) {
    const Node& act = edit_.node(i);
    const ValueId pre = act.inputs[0];
    const int32_t at = ProductOf(pre);
    if (at < 0) return;
    const bool keep = !edit_.IsReadOnceBy(pre, i);
    Node fused = edit_.node(static_cast<size_t>(at));
    fused.op = matmul_act_;
    fused.outputs = {act.outputs[0]};
    if (keep) fused.outputs.push_back(pre);
    fused.attrs.Set("kind", act.attrs.GetString("kind"));
    fused.attrs.Set("keep", keep);
    edit_.Drop(i);
    edit_.Replace(static_cast<size_t>(at), {std::move(fused)});
  }

  // Where the activation's gradient was: what lies in between (the weight's gradient, which reads
  // the hidden values for the last time) leaves less alive, and `pre` may be written over.
  void FuseGradient(size_t i) {
    const Node& grad = edit_.node(i);
    const ValueId pre = grad.inputs[0], dy = grad.inputs[1];
    const int32_t at = ProductOf(dy);
    if (at < 0 || !edit_.IsReadOnceBy(dy, i)) return;
    const Node& product = edit_.node(static_cast<size_t>(at));
    const bool has_bias = product.inputs.size() > 2 && product.inputs[2] != kNoValue;
    if (has_bias || !edit_.MayMoveLater(product)) return;
    Node fused = {
        matmul_act_grad_, {product.inputs[0], product.inputs[1], pre}, grad.outputs, product.attrs};
    fused.attrs.Set("kind", grad.attrs.GetString("kind"));
    edit_.Drop(static_cast<size_t>(at));
    edit_.Replace(i, {std::move(fused)});
  }

  GraphEdit edit_;
  const OpDef* const matmul_act_;
  const OpDef* const matmul_act_grad_;
};

}  // namespace

absl::StatusOr<Graph> FuseActivations(const Graph& graph, const OpRegistry& registry) {
  return Fusion(graph, registry).Run();
}

}  // namespace plumb
