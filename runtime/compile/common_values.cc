// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

absl::StatusOr<Graph> MergeCommonValues(Graph graph, const OpRegistry& /*registry*/) {
  Graph merged = std::move(graph);
  std::vector<bool> keep(merged.nodes.size(), true);
  std::vector<ValueId> replacement(merged.values.size());
  std::iota(replacement.begin(), replacement.end(), 0);
  absl::flat_hash_map<std::string, size_t>
      first_like;  // op, inputs and attributes -> the first such node
  for (size_t i = 0; i < merged.nodes.size(); ++i) {
    Node& node = merged.nodes[i];
    for (ValueId& id : node.inputs) {
      if (id != kNoValue) id = replacement[static_cast<size_t>(id)];
    }
    if (!node.op->updates.empty()) continue;
    const std::string key = absl::StrCat(node.op->name, "(", absl::StrJoin(node.inputs, ","), ")",
                                         node.attrs.ToString());
    const auto [at, is_first] = first_like.emplace(key, i);
    if (is_first) continue;
    keep[i] = false;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      replacement[static_cast<size_t>(node.outputs[k])] = merged.nodes[at->second].outputs[k];
    }
  }
  for (GraphOutput& output : merged.outputs) {
    output.value = replacement[static_cast<size_t>(output.value)];
  }
  return KeepNodes(std::move(merged), keep);
}

absl::StatusOr<Graph> DropDeadValues(Graph graph, const OpRegistry& /*registry*/) {
  GraphEdit edit(std::move(graph));
  std::vector<bool> needed = OutputValues(edit.graph());
  const auto is_needed = [&needed](ValueId id) { return needed[static_cast<size_t>(id)]; };
  for (size_t i = edit.node_count(); i-- > 0;) {
    const Node& node = edit.node(i);
    // The next run reads a state that is written here, even if no node of this run does.
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
