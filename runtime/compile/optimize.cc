// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/optimize.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

const std::vector<Pass>& AllPasses() {
  static const std::vector<Pass>* const passes = new std::vector<Pass>{
      {"form-programs", "formulas between sublayers, norms and products become one node each",
       FormPrograms, nullptr, true},
      {"last-token",
       "nodes that only the last token's results need are computed for that token alone",
       NarrowToLastToken},
      {"merge-combines",
       "sums of sums become one sum; sums of one term are that term, and so is stop",
       MergeCombines},
      {"common-values", "nodes that compute the same become one", MergeCommonValues},
      {"accumulate-embeddings",
       "an embedding's gradient is added in place to the other term of its sum",
       AccumulateEmbeddings},
      {"fuse-activations", "a product and its activation become one node, and so do gradients",
       FuseActivations},
      {"sum-products", "products accumulate onto the other terms of their sum", SumProducts},
      {"share-operands", "products of one left operand with several parameters become one node",
       ShareOperands},
      {"recompute-blocks",
       "values of a layer that only the backward pass keeps are recomputed there", RecomputeBlocks,
       &OptimizeOptions::recompute_blocks},
      {"fuse-residual-norms", "a sum and the norm of it become one node, and so do their gradients",
       FuseResidualNorms},
      {"dead-values", "nodes, and kept values of nodes, that nothing needs are dropped",
       DropDeadValues},
      {"gradient-norms", "the sum of each gradient's squares is taken where the gradient is made",
       GradientNorms, &OptimizeOptions::gradient_norms},
  };
  return *passes;
}

OptimizeOptions OnlyPasses(const std::vector<std::string>& names) {
  OptimizeOptions options;
  for (const Pass& pass : AllPasses()) {
    const bool runs = std::find(names.begin(), names.end(), pass.name) != names.end();
    if (!runs) options.disabled.push_back(pass.name);
    if (runs && pass.option != nullptr) options.*pass.option = true;
  }
  return options;
}

namespace {

absl::StatusOr<Graph> RunPasses(Graph graph, const OpRegistry& registry,
                                const OptimizeOptions& options, bool before_gradients) {
  const auto& disabled = options.disabled;
  for (const Pass& pass : AllPasses()) {
    if (pass.before_gradients != before_gradients) continue;
    if (pass.option != nullptr && !(options.*pass.option)) continue;
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    PLUMB_ASSIGN_OR_RETURN(graph, pass.run(std::move(graph), registry));
  }
  return graph;
}

}  // namespace

absl::StatusOr<Graph> OptimizeForward(Graph graph, const OpRegistry& registry,
                                      const OptimizeOptions& options) {
  return RunPasses(std::move(graph), registry, options, /*before_gradients=*/true);
}

absl::StatusOr<Graph> Optimize(Graph graph, const OpRegistry& registry,
                               const OptimizeOptions& options) {
  std::vector<std::string> names;
  for (const Pass& pass : AllPasses()) names.push_back(pass.name);
  for (const std::string& name : options.disabled) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown pass \"", name, "\"", DidYouMean(name, names)));
    }
  }
  return RunPasses(std::move(graph), registry, options, /*before_gradients=*/false);
}

}  // namespace plumb
