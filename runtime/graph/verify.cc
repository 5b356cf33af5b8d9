// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {
namespace {

bool InRange(const Graph& graph, ValueId id) {
  return id >= 0 && static_cast<size_t>(id) < graph.values.size();
}

absl::Status CheckArity(const Node& node) {
  const OpDef& op = *node.op;
  const int count = static_cast<int>(node.inputs.size());
  if (count < op.min_inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", count, " inputs, needs at least ", op.min_inputs));
  }
  if (op.max_inputs != OpDef::kVariadic && count > op.max_inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", count, " inputs, takes at most ", op.max_inputs));
  }
  return absl::OkStatus();
}

// Follows a value back through the nodes that wrote it in place, to the original leaf. Requires:
// the nodes passed CheckNode.
const Value& OriginOfUpdates(const Graph& graph, ValueId id) {
  const Value* value = &graph.value(id);
  while (value->kind == ValueKind::kComputed) {
    const Node& node = graph.nodes[static_cast<size_t>(value->producer)];
    const auto update = std::find_if(
        node.op->updates.begin(), node.op->updates.end(),
        [&](const auto& pair) { return node.outputs[static_cast<size_t>(pair.first)] == id; });
    if (update == node.op->updates.end()) break;
    id = node.inputs[static_cast<size_t>(update->second)];
    value = &graph.value(id);
  }
  return *value;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), defined_(graph.values.size(), false), updated_by_(graph.values.size(), -1) {}

  absl::Status Run() {
    PLUMB_RETURN_IF_ERROR(CheckValues());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      absl::Status status = CheckNode(node, static_cast<int32_t>(i));
      if (status.ok()) status = CheckAliases(node, static_cast<int32_t>(i));
      if (!status.ok()) {
        return Annotate(status, absl::StrCat("node ", i, ": ", ToString(graph_, node), ": "));
      }
    }
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      const Value& value = graph_.values[id];
      if (value.kind == ValueKind::kComputed && !defined_[id]) {
        return absl::InternalError(
            absl::StrCat("value ", value.name, " is computed but no node defines it"));
      }
    }
    return CheckOutputs();
  }

 private:
  absl::Status CheckValues() {
    absl::flat_hash_set<absl::string_view> names;
    for (const Value& value : graph_.values) {
      if (value.name.empty()) return absl::InternalError("a value has no name");
      if (!names.insert(value.name).second) {
        return absl::InternalError(absl::StrCat("two values are named ", value.name));
      }
      if (value.kind != ValueKind::kComputed && value.producer != -1) {
        return absl::InternalError(
            absl::StrCat("value ", value.name, " is a leaf but has a producer"));
      }
      for (const int64_t dim : value.type.shape.dims()) {
        if (dim < 1) {
          return absl::InternalError(
              absl::StrCat("value ", value.name, " has the empty type ", value.type.ToString()));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNode(const Node& node, int32_t index) {
    if (node.op == nullptr) return absl::InternalError("has no op");
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (!InRange(graph_, id)) return absl::InternalError("an input is out of range");
      const size_t slot = static_cast<size_t>(id);
      if (graph_.value(id).kind == ValueKind::kComputed && !defined_[slot]) {
        return absl::InternalError(
            absl::StrCat("reads ", graph_.value(id).name, " before it is defined"));
      }
      if (updated_by_[slot] >= 0) {
        return absl::InternalError(absl::StrCat("reads ", graph_.value(id).name, " after node ",
                                                updated_by_[slot], " has overwritten it"));
      }
    }
    absl::StatusOr<std::vector<TensorType>> types = InferTypes(graph_, node);
    if (!types.ok()) return types.status();
    if (types->size() != node.outputs.size()) {
      return absl::InternalError(absl::StrCat("has ", node.outputs.size(),
                                              " outputs, its shape rule gives ", types->size()));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (!InRange(graph_, id)) return absl::InternalError("an output is out of range");
      const Value& value = graph_.value(id);
      if (value.kind != ValueKind::kComputed || value.producer != index) {
        return absl::InternalError(
            absl::StrCat("defines ", value.name, ", which has another producer"));
      }
      if (defined_[static_cast<size_t>(id)]) {
        return absl::InternalError(absl::StrCat("defines ", value.name, " a second time"));
      }
      defined_[static_cast<size_t>(id)] = true;
      if (value.type != (*types)[i]) {
        return absl::InternalError(absl::StrCat(value.name, " is ", value.type.ToString(),
                                                ", its shape rule gives ", (*types)[i].ToString()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckAliases(const Node& node, int32_t index) {
    // may_alias may refer to an optional operand that this node lacks; `updates` may not.
    for (const auto& [out, in] : node.op->may_alias) {
      if (out < 0 || in < 0 ||
          (node.op->max_inputs != OpDef::kVariadic && in >= node.op->max_inputs)) {
        return absl::InternalError("its op's may_alias table is out of range");
      }
    }
    for (const auto& [out, in] : node.op->updates) {
      if (out < 0 || static_cast<size_t>(out) >= node.outputs.size() || in < 0 ||
          static_cast<size_t>(in) >= node.inputs.size()) {
        return absl::InternalError("its op's updates table is out of range");
      }
      const ValueId input = node.inputs[static_cast<size_t>(in)];
      const ValueId output = node.outputs[static_cast<size_t>(out)];
      if (input == kNoValue) return absl::InternalError("the input that it updates is absent");
      if (std::count(node.inputs.begin(), node.inputs.end(), input) > 1) {
        return absl::InternalError(
            absl::StrCat("updates ", graph_.value(input).name, ", which it also reads"));
      }
      if (graph_.value(input).type != graph_.value(output).type) {
        return absl::InternalError(
            absl::StrCat("updates ", graph_.value(input).name, " with a value of another type"));
      }
      if (OriginOfUpdates(graph_, input).kind != ValueKind::kState) {
        return absl::InternalError(
            absl::StrCat("updates ", graph_.value(input).name, ", which is not a state"));
      }
      updated_by_[static_cast<size_t>(input)] = index;
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() {
    absl::flat_hash_set<absl::string_view> names;
    for (const GraphOutput& output : graph_.outputs) {
      if (output.name.empty()) return absl::InternalError("an output has no name");
      if (!names.insert(output.name).second) {
        return absl::InternalError(absl::StrCat("two outputs are named ", output.name));
      }
      if (!InRange(graph_, output.value)) {
        return absl::InternalError(absl::StrCat("output ", output.name, " is out of range"));
      }
      const int32_t updated_by = updated_by_[static_cast<size_t>(output.value)];
      if (updated_by >= 0) {
        return absl::InternalError(absl::StrCat("output ", output.name, " is ",
                                                graph_.value(output.value).name, ", which node ",
                                                updated_by, " has overwritten"));
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  std::vector<bool> defined_;        // indexed by ValueId
  std::vector<int32_t> updated_by_;  // indexed by ValueId: the node that overwrote it, or -1
};

}  // namespace

absl::StatusOr<std::vector<TensorType>> InferTypes(const Graph& graph, const Node& node) {
  PLUMB_RETURN_IF_ERROR(CheckArity(node));
  std::vector<const TensorType*> inputs;
  inputs.reserve(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue) {
      if (static_cast<int>(i) < node.op->min_inputs) {
        return absl::InvalidArgumentError(absl::StrCat("input ", i, " is absent"));
      }
      inputs.push_back(nullptr);
    } else if (InRange(graph, id)) {
      inputs.push_back(&graph.value(id).type);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("input ", i, " is out of range"));
    }
  }
  return node.op->infer(OpTypes{inputs, {}, node.attrs});
}

absl::Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace plumb
