// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// Max distance, in nodes, that a product moves to the position of the sum: its operands, instead of
// its result, are kept alive until there.
constexpr size_t kMaxMove = 32;

bool HasBias(const Node& node) { return node.inputs.size() > 2 && node.inputs[2] != kNoValue; }

class ProductSum {
 public:
  ProductSum(Graph graph, const OpRegistry& registry)
      : edit_(std::move(graph)),
        matmul_add_(registry.Find("matmul_add")),
        matmul_sum_(registry.Find("matmul_sum")) {}

  Graph Run() && {
    for (size_t i = 0; i < edit_.node_count(); ++i) {
      if (IsPlainSum(edit_.node(i))) FuseSum(i);
    }
    return std::move(edit_).Finish();
  }

 private:
  const Node& GetProducer(ValueId id) const {
    return edit_.node(static_cast<size_t>(edit_.graph().value(id).producer));
  }

  // Returns true if `term` is a product that the sum at `reader` may compute.
  bool IsProduct(ValueId term, size_t reader) const {
    const int32_t producer = edit_.graph().value(term).producer;
    if (producer < 0) return false;
    const size_t at = static_cast<size_t>(producer);
    const Node& node = edit_.node(at);
    return node.op->name == "matmul" && !edit_.IsEdited(at) && reader - at <= kMaxMove &&
           edit_.IsReadOnceBy(term, reader) && edit_.MayMoveLater(node);
  }

  // Returns true if matmul_sum may compute the product together with others.
  bool IsSummable(ValueId term) const {
    const Node& node = GetProducer(term);
    return IsPlainProduct(edit_, node) && !HasBias(node) &&
           !node.attrs.GetBool("transpose_a", false);
  }

  void FuseSum(size_t i) {
    const Node& sum = edit_.node(i);
    std::vector<ValueId> products, others;
    for (const ValueId term : sum.inputs) (IsProduct(term, i) ? products : others).push_back(term);
    if (products.empty() || others.size() > 1 || sum.inputs.size() < 2) return;
    std::vector<ValueId> together = TakeSummable(&products);

    // Each product accumulates onto the previous one; the last computes the sum.
    std::vector<Node> nodes;
    ValueId total = others.empty() ? kNoValue : others[0];
    for (const ValueId product : products) {
      Node node = GetProducer(product);
      edit_.Drop(static_cast<size_t>(edit_.graph().value(product).producer));
      if (total != kNoValue) {
        node.op = matmul_add_;
        node.inputs.resize(3, kNoValue);  // the bias may be absent
        node.inputs.push_back(total);
        node.attrs = GetTransposes(node);
      }
      total = product;
      nodes.push_back(std::move(node));
    }
    if (!together.empty()) {
      Node node = {matmul_sum_, {total}, {together[0]}, {}};
      for (const ValueId product : together) {
        const Node& one = GetProducer(product);
        node.inputs.insert(node.inputs.end(), {one.inputs[0], one.inputs[1]});
        edit_.Drop(static_cast<size_t>(edit_.graph().value(product).producer));
      }
      node.attrs = GetTransposes(GetProducer(together[0]));
      node.attrs.Set("count", static_cast<int64_t>(together.size()));
      nodes.push_back(std::move(node));
    }
    nodes.back().outputs = sum.outputs;
    edit_.Replace(i, std::move(nodes));
  }

  // Moves the products that one matmul_sum can compute out of `products`, if there are several.
  std::vector<ValueId> TakeSummable(std::vector<ValueId>* products) const {
    std::vector<ValueId> taken[2];  // indexed by transpose_b
    for (const ValueId product : *products) {
      if (!IsSummable(product)) continue;
      taken[GetProducer(product).attrs.GetBool("transpose_b", false)].push_back(product);
    }
    std::vector<ValueId>& most = taken[taken[1].size() > taken[0].size()];
    if (most.size() < 2) return {};
    products->erase(std::remove_if(products->begin(), products->end(),
                                   [&](ValueId id) {
                                     return std::find(most.begin(), most.end(), id) != most.end();
                                   }),
                    products->end());
    return most;
  }

  static Attrs GetTransposes(const Node& node) {
    Attrs attrs;
    for (const char* name : {"transpose_a", "transpose_b"}) {
      if (node.attrs.GetBool(name, false)) attrs.Set(name, true);
    }
    return attrs;
  }

  GraphEdit edit_;
  const OpDef* const matmul_add_;
  const OpDef* const matmul_sum_;
};

}  // namespace

absl::StatusOr<Graph> SumProducts(Graph graph, const OpRegistry& registry) {
  return ProductSum(std::move(graph), registry).Run();
}

}  // namespace plumb
