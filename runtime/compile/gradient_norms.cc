// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

absl::StatusOr<Graph> GradientNorms(Graph graph, const OpRegistry& registry) {
  const OpDef* const sum_squares = registry.Find("sum_squares");
  const std::vector<GraphOutput> outputs = graph.outputs;
  GraphEdit edit(std::move(graph));
  for (const GraphOutput& output : outputs) {
    absl::string_view parameter = output.name;
    if (!absl::ConsumePrefix(&parameter, "grad.")) continue;
    const int32_t producer = edit.graph().value(output.value).producer;
    if (producer < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the gradient ", output.name, " is a leaf"));
    }
    const std::string name = absl::StrCat("grad_square.", parameter);
    const ValueId square = edit.NewValue(name, F32({1}));
    edit.InsertAfter(Index(producer), {sum_squares, {output.value}, {square}, {}});
    edit.AddOutput(name, square);
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
