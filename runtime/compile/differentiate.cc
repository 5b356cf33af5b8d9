// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/differentiate.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"

namespace plumb {
namespace {

constexpr int32_t kNoNode = std::numeric_limits<int32_t>::max();

class ReversePass {
 public:
  ReversePass(Graph graph, const OpRegistry& registry, ValueId loss)
      : forward_(std::move(graph)),
        loss_(loss),
        builder_(&registry, forward_),
        on_path_(forward_.values.size(), false),
        first_reader_(forward_.values.size(), kNoNode),
        parts_(forward_.values.size()),
        total_(forward_.values.size(), kNoValue) {}

  absl::StatusOr<Graph> Run() {
    FindPaths();
    if (on_path_[Index(loss_)]) {
      total_[Index(loss_)] = Fill(Shape({1}), 1);
      for (size_t i = forward_.nodes.size(); i-- > 0;) {
        PLUMB_RETURN_IF_ERROR(
            Annotate(Backward(forward_.nodes[i], static_cast<int32_t>(i)),
                     absl::StrCat("gradient of ", ToString(forward_, forward_.nodes[i]), ": ")));
      }
    }
    for (size_t id = 0; id < forward_.values.size(); ++id) {
      const Value& value = forward_.values[id];
      if (value.kind != ValueKind::kParameter) continue;
      if (!IsFloating(value.type.dtype)) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter ", value.name, " is ", value.type.ToString(),
                         "; only floating-point parameters have gradients"));
      }
      if (total_[id] == kNoValue) total_[id] = Fill(value.type.shape, 0);
      builder_.Output(absl::StrCat("grad.", value.name), total_[id]);
    }
    PLUMB_ASSIGN_OR_RETURN(Graph graph, std::move(builder_).Finish());
    NameGradients(&graph);
    return graph;
  }

 private:
  // A value needs a gradient when it depends on a parameter and the loss depends on it.
  void FindPaths() {
    const size_t n = forward_.values.size();
    std::vector<bool> from_parameter(n, false), to_loss(n, false);
    for (size_t id = 0; id < n; ++id) {
      from_parameter[id] = forward_.values[id].kind == ValueKind::kParameter;
    }
    const auto any = [](const std::vector<ValueId>& ids, const std::vector<bool>& flags) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](ValueId id) { return id != kNoValue && flags[Index(id)]; });
    };
    for (const Node& node : forward_.nodes) {
      if (!any(node.inputs, from_parameter)) continue;
      for (const ValueId id : node.outputs) {
        from_parameter[Index(id)] = IsFloating(forward_.value(id).type.dtype);
      }
    }
    to_loss[Index(loss_)] = true;
    for (size_t i = forward_.nodes.size(); i-- > 0;) {
      const Node& node = forward_.nodes[i];
      if (!any(node.outputs, to_loss)) continue;
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) to_loss[Index(id)] = true;
      }
    }
    for (size_t id = 0; id < n; ++id) on_path_[id] = from_parameter[id] && to_loss[id];
    for (size_t i = forward_.nodes.size(); i-- > 0;) {
      const Node& node = forward_.nodes[i];
      if (!any(node.outputs, on_path_)) continue;
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) first_reader_[Index(id)] = static_cast<int32_t>(i);
      }
    }
  }

  absl::Status Backward(const Node& node, int32_t index) {
    std::vector<ValueId> d_outputs;
    bool reached = false;
    for (const ValueId id : node.outputs) {
      d_outputs.push_back(total_[Index(id)]);
      reached = reached || total_[Index(id)] != kNoValue;
    }
    std::vector<bool> wanted;
    bool any_wanted = false;
    for (const ValueId id : node.inputs) {
      wanted.push_back(id != kNoValue && on_path_[Index(id)]);
      any_wanted = any_wanted || wanted.back();
    }
    if (!reached || !any_wanted) return absl::OkStatus();
    if (node.op->vjp == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the op ", node.op->name, " cannot be differentiated"));
    }
    const std::vector<ValueId> d_inputs = node.op->vjp(builder_, node, d_outputs, wanted);
    if (!builder_.ok()) return std::move(builder_).Finish().status();
    if (d_inputs.size() != node.inputs.size()) {
      return absl::InternalError(absl::StrCat("its VJP gave ", d_inputs.size(), " gradients for ",
                                              node.inputs.size(), " inputs"));
    }
    for (size_t i = 0; i < d_inputs.size(); ++i) {
      if (!wanted[i] || d_inputs[i] == kNoValue) continue;
      const TensorType type = GradientType(forward_.value(node.inputs[i]));
      if (builder_.type(d_inputs[i]) != type) {
        return absl::InternalError(
            absl::StrCat("its VJP gave ", builder_.type(d_inputs[i]).ToString(), " for input ", i,
                         ", whose gradient is ", type.ToString()));
      }
      parts_[Index(node.inputs[i])].push_back(d_inputs[i]);
    }
    // Summed as soon as the last part is there, so that the parts need not live on.
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && first_reader_[Index(id)] == index) SumParts(id);
    }
    return absl::OkStatus();
  }

  void SumParts(ValueId id) {
    std::vector<ValueId>& parts = parts_[Index(id)];
    if (total_[Index(id)] != kNoValue || parts.empty()) return;
    total_[Index(id)] =
        parts.size() == 1
            ? parts[0]
            : builder_.Apply(
                  "combine", parts,
                  Attrs({{"coefs", std::vector<double>(parts.size(), 1.0)}, {"constant", 0.0}}));
  }

  ValueId Fill(const Shape& shape, double value) {
    return builder_.Apply(
        "fill", {},
        Attrs({{"dims", std::vector<double>(shape.dims().begin(), shape.dims().end())},
               {"value", value}}));
  }

  // Calls the gradient of `v` "grad.v", and its parts, where there are several, "grad.v.1", ... A
  // VJP does not know these names when it makes the values. One that is the gradient of two values
  // keeps the name of the one that is nearer to the loss.
  void NameGradients(Graph* graph) const {
    absl::flat_hash_set<std::string> taken;
    for (const Value& value : graph->values) taken.insert(value.name);
    std::vector<bool> named(graph->values.size(), false);
    const auto name = [&](ValueId id, const std::string& wanted) {
      if (id == kNoValue || Index(id) < forward_.values.size() || named[Index(id)]) return;
      named[Index(id)] = true;
      std::string unique = wanted;
      for (int suffix = 2; !taken.insert(unique).second; ++suffix) {
        unique = absl::StrCat(wanted, "_", suffix);
      }
      graph->values[Index(id)].name = unique;
    };
    for (size_t id = forward_.values.size(); id-- > 0;) {
      name(total_[id], absl::StrCat("grad.", forward_.values[id].name));
    }
    for (size_t id = forward_.values.size(); id-- > 0;) {
      for (size_t k = 0; k < parts_[id].size(); ++k) {
        name(parts_[id][k], absl::StrCat("grad.", forward_.values[id].name, ".", k + 1));
      }
    }
  }

  const Graph forward_;  // VJPs see its nodes: the builder's own move as it grows
  const ValueId loss_;
  GraphBuilder builder_;
  std::vector<bool> on_path_;                // the rest by ValueId of `forward_`
  std::vector<int32_t> first_reader_;        // first node on a path that reads it
  std::vector<std::vector<ValueId>> parts_;  // gradients that its readers sent, in backward order
  std::vector<ValueId> total_;               // their sum, once all are there
};

}  // namespace

absl::StatusOr<Graph> Differentiate(Graph graph, const OpRegistry& registry,
                                    absl::string_view loss) {
  const ValueId id = graph.FindOutput(loss);
  if (id == kNoValue) {
    return absl::InvalidArgumentError(absl::StrCat("the graph has no output \"", loss, "\""));
  }
  if (graph.value(id).type != F32({1})) {
    return absl::InvalidArgumentError(absl::StrCat("the loss \"", loss, "\" is ",
                                                   graph.value(id).type.ToString(),
                                                   ", but only f32[1] can be differentiated"));
  }
  return ReversePass(std::move(graph), registry, id).Run();
}

}  // namespace plumb
