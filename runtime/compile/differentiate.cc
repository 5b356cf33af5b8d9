// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/differentiate.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/program.h"
#include "runtime/graph/reverse_pass.h"

namespace plumb {
namespace {

ValueId Fill(GraphBuilder* b, const Shape& shape, double value) {
  return b->Apply("fill", {},
                  Attrs({{"dims", std::vector<double>(shape.dims().begin(), shape.dims().end())},
                         {"value", value}}));
}

// Marks the values v for which gradient(v) is only a part of the gradient, because the program that
// computes v also reads it: gradient(v) then comes from the other readers only.
std::vector<bool> PartialGradients(const Graph& graph) {
  std::vector<bool> partial(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op->name != "program") continue;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      partial[Index(node.outputs[k])] = GetProgram(node.attrs).ReadsOutput(k);
    }
  }
  return partial;
}

// Names the gradient of `v` "grad.v", and its parts, if there are several, "grad.v.1", ... VJPs
// create the values before these names are known. The gradient of two values gets the name of the
// one that is nearer to the loss.
void NameGradients(const Graph& forward, const ReversePass& reverse, Graph* graph) {
  absl::flat_hash_set<std::string> taken;
  for (const Value& value : graph->values) taken.insert(value.name);
  std::vector<bool> named(graph->values.size(), false);
  const auto name = [&](ValueId id, const std::string& wanted) {
    if (id == kNoValue || Index(id) < forward.values.size() || named[Index(id)]) return;
    named[Index(id)] = true;
    std::string unique = wanted;
    for (int suffix = 2; !taken.insert(unique).second; ++suffix) {
      unique = absl::StrCat(wanted, "_", suffix);
    }
    graph->values[Index(id)].name = unique;
  };
  const std::vector<bool> partial = PartialGradients(forward);
  for (size_t id = forward.values.size(); id-- > 0;) {
    if (partial[id]) continue;
    name(reverse.gradient(static_cast<ValueId>(id)),
         absl::StrCat("grad.", forward.values[id].name));
  }
  for (size_t id = forward.values.size(); id-- > 0;) {
    if (partial[id]) continue;
    const std::vector<ValueId>& parts = reverse.parts(static_cast<ValueId>(id));
    for (size_t k = 0; k < parts.size(); ++k) {
      name(parts[k], absl::StrCat("grad.", forward.values[id].name, ".", k + 1));
    }
  }
}

}  // namespace

absl::StatusOr<Graph> Differentiate(Graph graph, const OpRegistry& registry, absl::string_view loss,
                                    const std::vector<std::string>& frozen) {
  const ValueId id = graph.FindOutput(loss);
  if (id == kNoValue) {
    return absl::InvalidArgumentError(absl::StrCat("the graph has no output \"", loss, "\""));
  }
  if (graph.value(id).type != F32({1})) {
    return absl::InvalidArgumentError(absl::StrCat("the loss \"", loss, "\" is ",
                                                   graph.value(id).type.ToString(),
                                                   ", but only f32[1] can be differentiated"));
  }
  const Graph forward = std::move(graph);
  const absl::flat_hash_set<std::string> no_gradient(frozen.begin(), frozen.end());
  std::vector<bool> wanted;
  for (const Value& value : forward.values) {
    wanted.push_back(value.kind == ValueKind::kParameter && !no_gradient.contains(value.name));
    if (!wanted.back() || IsFloating(value.type.dtype)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", value.name, " is ", value.type.ToString(),
                     "; only floating-point parameters have gradients"));
  }
  GraphBuilder builder(&registry, forward);
  ReversePass reverse(forward, wanted, &builder);
  PLUMB_RETURN_IF_ERROR(reverse.Run({{id, Fill(&builder, Shape({1}), 1)}}));
  for (size_t i = 0; i < forward.values.size(); ++i) {
    const Value& value = forward.values[i];
    if (!wanted[i]) continue;
    ValueId gradient = reverse.gradient(static_cast<ValueId>(i));
    if (gradient == kNoValue) gradient = Fill(&builder, value.type.shape, 0);
    builder.Output(absl::StrCat("grad.", value.name), gradient);
  }
  PLUMB_ASSIGN_OR_RETURN(Graph differentiated, std::move(builder).Finish());
  NameGradients(forward, reverse, &differentiated);
  return differentiated;
}

}  // namespace plumb
