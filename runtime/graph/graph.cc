// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/graph.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumb {
namespace {

const char* LeafKindName(ValueKind kind) {
  switch (kind) {
    case ValueKind::kParameter:
      return "parameter";
    case ValueKind::kInput:
      return "input";
    case ValueKind::kState:
      return "state";
    case ValueKind::kComputed:
      break;
  }
  return "computed";
}

// Prints ids out of range as "%12?", because the verifier describes broken graphs with this text.
std::string Definition(const Graph& graph, ValueId id) {
  if (id < 0 || static_cast<size_t>(id) >= graph.values.size()) return absl::StrCat("%", id, "?");
  const Value& value = graph.value(id);
  return absl::StrCat("%", id, " ", value.type.ToString(), " ", value.name);
}

std::string Operand(ValueId id) { return id == kNoValue ? "_" : absl::StrCat("%", id); }

}  // namespace

ValueId Graph::FindOutput(absl::string_view name) const {
  for (const GraphOutput& output : outputs) {
    if (output.name == name) return output.value;
  }
  return FindValue(name);
}

ValueId Graph::FindValue(absl::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return static_cast<ValueId>(i);
  }
  return kNoValue;
}

std::string ToString(const Graph& graph, const Node& node) {
  const auto append_definition = [&graph](std::string* out, ValueId id) {
    out->append(Definition(graph, id));
  };
  const auto append_operand = [](std::string* out, ValueId id) { out->append(Operand(id)); };
  std::string line = absl::StrCat(absl::StrJoin(node.outputs, ", ", append_definition), " = ",
                                  node.op == nullptr ? "?" : node.op->name, "(",
                                  absl::StrJoin(node.inputs, ", ", append_operand), ")");
  const std::string attrs = node.attrs.ToString();
  if (!attrs.empty()) absl::StrAppend(&line, " ", attrs);
  return line;
}

std::string ToString(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const ValueKind kind = graph.values[i].kind;
    if (kind == ValueKind::kComputed) continue;
    absl::StrAppend(&text, Definition(graph, static_cast<ValueId>(i)), " = ", LeafKindName(kind),
                    "\n");
  }
  for (const Node& node : graph.nodes) absl::StrAppend(&text, ToString(graph, node), "\n");
  for (const GraphOutput& output : graph.outputs) {
    absl::StrAppend(&text, "output ", output.name, " = %", output.value, "\n");
  }
  return text;
}

}  // namespace plumb
