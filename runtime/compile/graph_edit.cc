// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/graph_edit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/compile/rewrite.h"

namespace plumb {

GraphEdit::GraphEdit(Graph graph)
    : graph_(std::move(graph)),
      readers_(FindReaders(graph_)),
      is_output_(OutputValues(graph_)),
      overwritten_(OverwrittenValues(graph_)),
      edited_(graph_.nodes.size(), false),
      in_place_(graph_.nodes.size()),
      after_(graph_.nodes.size()) {}

bool GraphEdit::IsReadOnceBy(ValueId id, size_t reader) const {
  const std::vector<int32_t>& all = readers(id);
  const std::vector<ValueId>& operands = node(reader).inputs;
  return !IsOutput(id) && all.size() == 1 && all[0] == static_cast<int32_t>(reader) &&
         std::count(operands.begin(), operands.end(), id) == 1;
}

bool GraphEdit::MayMoveLater(const Node& node) const {
  return std::none_of(node.inputs.begin(), node.inputs.end(),
                      [this](ValueId id) { return id != kNoValue && overwritten_[Index(id)]; });
}

void GraphEdit::Drop(size_t position) { Replace(position, {}); }

void GraphEdit::Replace(size_t position, std::vector<Node> nodes) {
  edited_[position] = true;
  in_place_[position] = std::move(nodes);
}

void GraphEdit::InsertAfter(size_t position, Node node) {
  after_[position].push_back(std::move(node));
}

ValueId GraphEdit::NewValue(const std::string& name, TensorType type) {
  if (names_.empty()) {
    for (const Value& value : graph_.values) names_.insert(value.name);
  }
  std::string unique = name;
  for (int suffix = 2; !names_.insert(unique).second; ++suffix) {
    unique = absl::StrCat(name, "_", suffix);
  }
  graph_.values.push_back({std::move(unique), std::move(type), ValueKind::kComputed, -1});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

Graph GraphEdit::Finish() && {
  Graph edited;
  edited.values.reserve(graph_.values.size());
  edited.nodes.reserve(graph_.nodes.size());
  std::vector<int32_t> producer(graph_.values.size(), -1);
  const auto append = [&](Node node) {
    for (const ValueId id : node.outputs) {
      producer[Index(id)] = static_cast<int32_t>(edited.nodes.size());
    }
    edited.nodes.push_back(std::move(node));
  };
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (edited_[i]) {
      for (Node& node : in_place_[i]) append(std::move(node));
    } else {
      append(std::move(graph_.nodes[i]));
    }
    for (Node& node : after_[i]) append(std::move(node));
  }
  std::vector<ValueId> new_id(graph_.values.size(), kNoValue);
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    Value& value = graph_.values[id];
    if (value.kind == ValueKind::kComputed) {
      if (producer[id] < 0) continue;
      value.producer = producer[id];
    }
    new_id[id] = static_cast<ValueId>(edited.values.size());
    edited.values.push_back(std::move(value));
  }
  const auto renumber = [&new_id](ValueId& id) {
    if (id != kNoValue) id = new_id[Index(id)];
  };
  for (Node& node : edited.nodes) {
    for (ValueId& id : node.inputs) renumber(id);
    for (ValueId& id : node.outputs) renumber(id);
  }
  edited.outputs = std::move(graph_.outputs);
  for (GraphOutput& output : edited.outputs) renumber(output.value);
  return edited;
}

Graph KeepNodes(Graph graph, const std::vector<bool>& keep) {
  GraphEdit edit(std::move(graph));
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) edit.Drop(i);
  }
  return std::move(edit).Finish();
}

bool IsPlainSum(const Node& node) {
  if (node.op->name != "combine" || node.attrs.GetDouble("constant", 0) != 0) return false;
  const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
  return std::all_of(coefs.begin(), coefs.end(), [](double coef) { return coef == 1; });
}

bool IsPlainProduct(const GraphEdit& edit, const Node& node) {
  if (node.op->name != "matmul") return false;
  const DType dtype = edit.graph().value(node.outputs[0]).type.dtype;
  return edit.graph().value(node.inputs[0]).type.dtype == dtype &&
         edit.graph().value(node.inputs[1]).type.dtype == dtype;
}

}  // namespace plumb
