// SPDX-License-Identifier: Apache-2.0
// Implements ExpectVjpMatchesDifferences.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "tests/ops/op_operands.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

// The VJP of a case: the graph of op and VJP, and the gradient of each input (kNoValue if there is
// none).
struct VjpGraph {
  Graph graph;
  std::vector<ValueId> outputs;   // outputs of the op
  std::vector<ValueId> d_inputs;  // one per input
};

std::string SeedName(size_t output) { return absl::StrCat("d_out", output); }

absl::StatusOr<VjpGraph> BuildVjp(const OpRegistry& registry, const OpCase& c,
                                  const std::vector<bool>& wanted) {
  PLUMB_ASSIGN_OR_RETURN(Graph forward, BuildCase(registry, c));
  const Node node = forward.nodes[0];
  GraphBuilder b(&registry, std::move(forward));
  std::vector<ValueId> d_outputs(node.outputs.size(), kNoValue);
  for (const int o : c.differentiated_outputs) {
    const size_t output = static_cast<size_t>(o);
    d_outputs[output] = b.Input(SeedName(output), b.type(node.outputs[output]));
  }
  VjpGraph vjp;
  vjp.outputs = node.outputs;
  vjp.d_inputs = node.op->vjp(b, node, d_outputs, wanted);
  PLUMB_ASSIGN_OR_RETURN(vjp.graph, std::move(b).Finish());
  return vjp;
}

}  // namespace

void ExpectVjpMatchesDifferences(const OpRegistry& registry, const OpCase& c) {
  const OpDef* op = registry.Find(c.op);
  ASSERT_NE(op, nullptr);
  if (op->vjp == nullptr || c.differentiated_outputs.empty()) return;
  // bf16 has the same derivation as f32, but is too coarse for differences.
  for (const CaseInput& input : c.inputs) {
    if (!input.absent && input.type.dtype == DType::kBF16) return;
  }

  std::vector<bool> wanted;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    wanted.push_back(!c.inputs[i].absent && !c.inputs[i].constant &&
                     c.inputs[i].type.dtype == DType::kF32 && !IsUpdated(*op, i));
  }
  const absl::StatusOr<VjpGraph> vjp = BuildVjp(registry, c, wanted);
  ASSERT_TRUE(vjp.ok()) << vjp.status();
  ASSERT_EQ(vjp->d_inputs.size(), c.inputs.size());

  std::map<std::string, ReferenceTensor> leaves = NamedLeaves(MakeInputs(c));
  for (const int o : c.differentiated_outputs) {
    const size_t output = static_cast<size_t>(o);
    ReferenceTensor seed = Zeros(vjp->graph.value(vjp->outputs[output]).type);
    const RngStream draws(2, absl::StrCat(c.op, c.name, o));
    for (size_t e = 0; e < seed.f.size(); ++e) seed.f[e] = draws.Normal(e);
    leaves[SeedName(output)] = std::move(seed);
  }
  const auto gradients = RunReference(vjp->graph, leaves);
  ASSERT_TRUE(gradients.ok()) << gradients.status();

  // The loss whose gradients these are: the outputs times their seeds.
  const absl::StatusOr<Graph> forward = BuildCase(registry, c);
  ASSERT_TRUE(forward.ok()) << forward.status();
  const auto loss = [&](const std::map<std::string, ReferenceTensor>& at) {
    const auto values = RunReference(*forward, at);
    EXPECT_TRUE(values.ok()) << values.status();
    double sum = 0;
    for (const int o : c.differentiated_outputs) {
      const size_t output = static_cast<size_t>(o);
      const std::vector<double>& seed = leaves.at(SeedName(output)).f;
      const std::vector<double>& y = (*values)[static_cast<size_t>(vjp->outputs[output])].f;
      for (size_t e = 0; e < seed.size(); ++e) sum += seed[e] * y[e];
    }
    return sum;
  };

  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) {
      EXPECT_EQ(vjp->d_inputs[i], kNoValue) << "input " << i << " has no gradient";
      continue;
    }
    ASSERT_NE(vjp->d_inputs[i], kNoValue) << "input " << i;
    const ReferenceTensor& gradient = (*gradients)[static_cast<size_t>(vjp->d_inputs[i])];
    ReferenceTensor& x = leaves.at(LeafName(i));
    ASSERT_EQ(gradient.type, x.type) << "input " << i;

    const std::vector<int64_t> order =
        Permutation(RngStream(3, absl::StrCat(c.op, c.name, i)), x.type.num_elements());
    const size_t checked =
        std::min(order.size(), static_cast<size_t>(std::max(1, c.checked_elements)));
    for (size_t k = 0; k < checked; ++k) {
      const size_t e = static_cast<size_t>(order[k]);
      const double step = 1e-4;
      const double at = x.f[e];
      // Differences of fourth order: plain central ones would need a looser tolerance.
      const auto loss_at = [&](double offset) {
        x.f[e] = at + offset * step;
        const double value = loss(leaves);
        x.f[e] = at;
        return value;
      };
      const double difference =
          (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * step);
      EXPECT_NEAR(gradient.f[e], difference, 1e-6 * std::max(1.0, std::abs(difference)))
          << "input " << i << ", element " << e;
    }

    // Each gradient is the same if only it is wanted.
    std::vector<bool> only(wanted.size(), false);
    only[i] = true;
    const absl::StatusOr<VjpGraph> single = BuildVjp(registry, c, only);
    ASSERT_TRUE(single.ok()) << single.status();
    ASSERT_NE(single->d_inputs[i], kNoValue) << "input " << i << " alone";
    const auto values = RunReference(single->graph, leaves);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(Identical((*values)[static_cast<size_t>(single->d_inputs[i])], gradient))
        << "input " << i << " alone";
  }
}

}  // namespace plumb
