// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Returns ApplyAll's result after an error, long enough for any index that a caller of an op with
// `inputs` operands uses: no op has more outputs than this.
std::vector<ValueId> NoValues(size_t inputs) {
  return std::vector<ValueId>(std::max<size_t>(8, inputs + 2), kNoValue);
}

}  // namespace

GraphBuilder::GraphBuilder(const OpRegistry* registry, Graph graph)
    : registry_(registry), graph_(std::move(graph)) {
  for (const Value& value : graph_.values) names_.emplace(value.name, 0);
}

ValueId GraphBuilder::Parameter(absl::string_view name, TensorType type) {
  return AddLeaf(name, std::move(type), ValueKind::kParameter);
}

ValueId GraphBuilder::Input(absl::string_view name, TensorType type) {
  return AddLeaf(name, std::move(type), ValueKind::kInput);
}

ValueId GraphBuilder::State(absl::string_view name, TensorType type) {
  return AddLeaf(name, std::move(type), ValueKind::kState);
}

std::vector<ValueId> GraphBuilder::ApplyAll(absl::string_view op, std::vector<ValueId> inputs,
                                            Attrs attrs, absl::string_view name) {
  if (!ok()) return NoValues(inputs.size());
  const OpDef* def = registry_->Find(op);
  Node node{def, std::move(inputs), {}, std::move(attrs)};
  const auto fail = [&](const absl::Status& status) {
    const auto append_type = [this](std::string* out, ValueId id) {
      const bool known = id >= 0 && static_cast<size_t>(id) < graph_.values.size();
      out->append(known ? type(id).ToString() : id == kNoValue ? "_" : "?");
    };
    const std::string attrs_text = node.attrs.ToString();
    Fail(Annotate(status, absl::StrCat(name, name.empty() ? "" : ": ", op, "(",
                                       absl::StrJoin(node.inputs, ", ", append_type), ")",
                                       attrs_text.empty() ? "" : " ", attrs_text, ": ")));
    return NoValues(node.inputs.size());
  };
  if (def == nullptr) {
    std::vector<std::string> known;
    for (const OpDef* other : registry_->All()) known.push_back(other->name);
    return fail(absl::InvalidArgumentError(absl::StrCat("unknown op", DidYouMean(op, known))));
  }
  absl::StatusOr<std::vector<TensorType>> types = InferTypes(graph_, node);
  if (!types.ok()) return fail(types.status());

  const std::string first = UniqueName(name.empty() ? op : name);
  const int32_t index = static_cast<int32_t>(graph_.nodes.size());
  for (size_t i = 0; i < types->size(); ++i) {
    node.outputs.push_back(AddValue(i == 0 ? first : UniqueName(absl::StrCat(first, ".", i)),
                                    std::move((*types)[i]), ValueKind::kComputed, index));
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

ValueId GraphBuilder::Apply(absl::string_view op, std::vector<ValueId> inputs, Attrs attrs,
                            absl::string_view name) {
  return ApplyAll(op, std::move(inputs), std::move(attrs), name).front();
}

void GraphBuilder::Output(absl::string_view name, ValueId value) {
  if (!ok()) return;
  if (value < 0 || static_cast<size_t>(value) >= graph_.values.size()) {
    Fail(
        absl::InvalidArgumentError(absl::StrCat("output ", name, ": does not exist in the graph")));
    return;
  }
  graph_.outputs.push_back({std::string(name), value});
}

const TensorType& GraphBuilder::type(ValueId id) const {
  return id == kNoValue ? type_after_error_ : graph_.value(id).type;
}

void GraphBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::StatusOr<Graph> GraphBuilder::Finish() && {
  PLUMB_RETURN_IF_ERROR(status_);
  PLUMB_RETURN_IF_ERROR(Verify(graph_));
  return std::move(graph_);
}

ValueId GraphBuilder::AddLeaf(absl::string_view name, TensorType type, ValueKind kind) {
  if (!ok()) return kNoValue;
  if (name.empty() || !names_.emplace(name, 0).second) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\": the name of a parameter, input or state must be new")));
    return kNoValue;
  }
  return AddValue(std::string(name), std::move(type), kind, -1);
}

ValueId GraphBuilder::AddValue(std::string name, TensorType type, ValueKind kind,
                               int32_t producer) {
  graph_.values.push_back({std::move(name), std::move(type), kind, producer});
  return static_cast<ValueId>(graph_.values.size() - 1);
}

std::string GraphBuilder::UniqueName(absl::string_view wanted) {
  std::string name(wanted);
  if (names_.emplace(name, 1).second) return name;
  // A copy, not a reference into the map, because the loop inserts into it.
  int suffix = std::max(names_[name], 1);
  do {
    name = absl::StrCat(wanted, "_", ++suffix);
  } while (!names_.emplace(name, 1).second);
  names_[std::string(wanted)] = suffix;
  return name;
}

}  // namespace plumb
