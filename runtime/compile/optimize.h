// Graph passes. Each is a pure function from graph to graph that keeps every output's value; the
// graph is verified after each. They know ops, never placements or norms.
#ifndef PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_
#define PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

struct Pass {
  std::string name;  // "dead-values"
  std::string doc;
  absl::StatusOr<Graph> (*run)(const Graph& graph, const OpRegistry& registry);
};

// All passes, in the order in which Optimize runs them:
//   merge-combines       combine(combine(..)) used once becomes one sum; combine of one value with
//                        coefficient 1 and no constant is that value
//   common-values        two nodes with equal op, inputs and attributes become one
//   fuse-residual-norms  combine(a, b) and the first norm that reads it become one add_norm; a
//                        combine of gradients goes into the norm_grad nodes among its terms. Only
//                        where every bit stays: coefficients 1, no constant, the same order
//   dead-values          nodes that no output needs and that update no state are dropped
const std::vector<Pass>& AllPasses();

struct OptimizeOptions {
  std::vector<std::string> disabled;  // names of passes to leave out
};
absl::StatusOr<Graph> Optimize(Graph graph, const OpRegistry& registry,
                               const OptimizeOptions& options = {});

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_
