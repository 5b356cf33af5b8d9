#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

absl::StatusOr<Graph> DropDeadValues(const Graph& graph, const OpRegistry& /*registry*/) {
  std::vector<bool> needed = OutputValues(graph);
  const auto is_needed = [&needed](ValueId id) { return needed[static_cast<size_t>(id)]; };
  GraphEdit edit(graph);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    // A state that is written is seen by the next run, whoever reads it in this one.
    if (node.op->updates.empty() &&
        std::none_of(node.outputs.begin(), node.outputs.end(), is_needed)) {
      edit.Drop(i);
      continue;
    }
    if (node.op->name == "matmul_act" && node.outputs.size() == 2 && !is_needed(node.outputs[1])) {
      Node without_derivative = node;
      without_derivative.outputs.pop_back();
      without_derivative.attrs.Set("keep", false);
      edit.Replace(i, {std::move(without_derivative)});
    }
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) needed[static_cast<size_t>(id)] = true;
    }
  }
  return std::move(edit).Finish();
}

}  // namespace plumb
