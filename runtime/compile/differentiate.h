// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation, graph to graph. Pure.
#ifndef PLUMB_RUNTIME_COMPILE_DIFFERENTIATE_H_
#define PLUMB_RUNTIME_COMPILE_DIFFERENTIATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

// Returns `graph` with the nodes of its backward pass, and one output "grad.<parameter>" for every
// parameter (zeros if the loss does not depend on it). `loss` names an output of type f32[1].
// Several gradients of one value are summed by one `combine` node, in the order in which its
// readers run backward. Parameters whose names are in `frozen` have no gradient.
absl::StatusOr<Graph> Differentiate(Graph graph, const OpRegistry& registry, absl::string_view loss,
                                    const std::vector<std::string>& frozen = {});

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_DIFFERENTIATE_H_
