// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/program.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/graph/reverse_pass.h"

namespace plumb {
namespace {

constexpr char kGraph[] = "graph";

std::vector<ValueId> CollectLeaves(const Graph& graph) {
  std::vector<ValueId> leaves;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].kind != ValueKind::kComputed) leaves.push_back(static_cast<ValueId>(id));
  }
  return leaves;
}

std::vector<bool> GetRows(const Graph& graph, const std::vector<ValueId>& leaves) {
  std::vector<bool> is_flat(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op->name == "split" && node.attrs.GetBool("flat", false)) {
      is_flat[Index(node.inputs[0])] = true;
    }
  }
  std::vector<bool> has_rows;
  for (const ValueId id : leaves) {
    has_rows.push_back(graph.value(id).type.shape.rank() > 1 && !is_flat[Index(id)]);
  }
  return has_rows;
}

void AppendOperand(std::string* text, ValueId id) {
  id == kNoValue ? absl::StrAppend(text, "_") : absl::StrAppend(text, "%", id);
}

std::string GetText(const Graph& graph, const std::vector<ValueId>& leaves) {
  std::string text = "(";
  for (const ValueId id : leaves) {
    absl::StrAppend(&text, id == leaves.front() ? "" : ", ", "%", id, " ",
                    graph.value(id).type.ToString());
  }
  absl::StrAppend(&text, ") {");
  for (const Node& node : graph.nodes) {
    absl::StrAppend(&text, " ", absl::StrJoin(node.outputs, ", ", AppendOperand), " = ",
                    node.op->name, "(", absl::StrJoin(node.inputs, ", ", AppendOperand), ")",
                    node.attrs.ToString(), ";");
  }
  const auto append_output = [](std::string* out, const GraphOutput& output) {
    AppendOperand(out, output.value);
  };
  absl::StrAppend(&text, " return ", absl::StrJoin(graph.outputs, ", ", append_output), " }");
  return text;
}

// A graph without the nodes and leaves that no output needs.
struct PrunedGraph {
  Graph graph;
  std::vector<size_t> leaves;  // indices of the kept leaves among the original ones
};
PrunedGraph PruneGraph(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) needed[Index(output.value)] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    for (const ValueId id : graph.nodes[i].outputs) keep[i] = keep[i] || needed[Index(id)];
    if (!keep[i]) continue;
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) needed[Index(id)] = true;
    }
  }
  PrunedGraph pruned;
  std::vector<ValueId> new_id(graph.values.size(), kNoValue);
  std::vector<int32_t> new_node(graph.nodes.size(), -1);
  int32_t nodes = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (keep[i]) new_node[i] = nodes++;
  }
  size_t leaf = 0;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    Value value = graph.values[id];
    if (value.kind != ValueKind::kComputed) {
      if (needed[id]) pruned.leaves.push_back(leaf);
      ++leaf;
      if (!needed[id]) continue;
    } else {
      value.producer = new_node[Index(value.producer)];
      if (value.producer < 0) continue;
    }
    new_id[id] = static_cast<ValueId>(pruned.graph.values.size());
    pruned.graph.values.push_back(std::move(value));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep[i]) continue;
    Node node = graph.nodes[i];
    for (ValueId& id : node.inputs) id = id == kNoValue ? id : new_id[Index(id)];
    for (ValueId& id : node.outputs) id = new_id[Index(id)];
    pruned.graph.nodes.push_back(std::move(node));
  }
  for (const GraphOutput& output : graph.outputs) {
    pruned.graph.outputs.push_back({output.name, new_id[Index(output.value)]});
  }
  return pruned;
}

}  // namespace

ProgramAttr::ProgramAttr(Graph graph)
    : graph_(std::move(graph)),
      leaves_(CollectLeaves(graph_)),
      has_rows_(GetRows(graph_, leaves_)),
      text_(GetText(graph_, leaves_)) {}

const ProgramAttr& GetProgram(const Attrs& attrs) {
  return static_cast<const ProgramAttr&>(*attrs.GetObject(kGraph));
}

absl::StatusOr<std::vector<TensorType>> InferProgram(const ProgramAttr& program,
                                                     absl::Span<const TensorType* const> inputs) {
  const Graph& graph = program.graph();
  if (inputs.size() != program.leaves().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program has ", program.leaves().size(), " inputs, not ", inputs.size()));
  }
  std::vector<TensorType> types;
  types.reserve(graph.values.size());
  for (const Value& value : graph.values) types.push_back(value.type);
  bool alike = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorType& type = types[Index(program.leaves()[i])];
    alike = alike && type == *inputs[i];
    type = *inputs[i];
  }
  if (alike) return types;  // the graph's own types
  std::vector<const TensorType*> operands;
  for (const Node& node : graph.nodes) {
    operands.clear();
    for (const ValueId id : node.inputs) {
      operands.push_back(id == kNoValue ? nullptr : &types[Index(id)]);
    }
    PLUMB_ASSIGN_OR_RETURN(std::vector<TensorType> outputs,
                           node.op->infer(OpTypes{operands, {}, node.attrs}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      types[Index(node.outputs[i])] = std::move(outputs[i]);
    }
  }
  return types;
}

bool ProgramAttr::ReadsOutput(size_t k) const {
  const ValueId output = graph_.outputs[k].value;
  return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [output](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), output) != node.inputs.end();
  });
}

absl::StatusOr<std::shared_ptr<const ProgramAttr>> ProgramAttr::WithInputs(
    absl::Span<const TensorType* const> inputs) const {
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferProgram(*this, inputs));
  Graph graph = graph_;
  for (size_t id = 0; id < types.size(); ++id) graph.values[id].type = std::move(types[id]);
  return std::make_shared<const ProgramAttr>(std::move(graph));
}

absl::StatusOr<ProgramAttr::Gradient> ProgramAttr::MakeGradient(
    const OpRegistry& registry, const std::vector<bool>& wanted_leaves,
    const std::vector<bool>& given_outputs) const {
  Graph forward = graph_;
  forward.outputs.clear();
  GraphBuilder builder(&registry, std::move(forward));
  std::vector<ReversePass::Seed> seeds;
  for (size_t k = 0; k < given_outputs.size(); ++k) {
    if (!given_outputs[k]) continue;
    const ValueId value = graph_.outputs[k].value;
    seeds.push_back({value, builder.Input(absl::StrCat("dy.", k), graph_.value(value).type)});
  }
  std::vector<bool> wanted(graph_.values.size(), false);
  for (size_t i = 0; i < wanted_leaves.size(); ++i) wanted[Index(leaves_[i])] = wanted_leaves[i];
  ReversePass reverse(graph_, std::move(wanted), &builder);
  PLUMB_RETURN_IF_ERROR(reverse.Run(seeds));
  Gradient made;
  for (size_t i = 0; i < wanted_leaves.size(); ++i) {
    const ValueId gradient = reverse.gradient(leaves_[i]);
    if (!wanted_leaves[i] || gradient == kNoValue) continue;
    builder.Output(absl::StrCat("d.", i), gradient);
    made.leaves.push_back(i);
  }
  if (made.leaves.empty()) return made;
  PLUMB_ASSIGN_OR_RETURN(const Graph graph, std::move(builder).Finish());
  PrunedGraph pruned = PruneGraph(graph);
  made.inputs = std::move(pruned.leaves);
  made.program = std::make_shared<ProgramAttr>(std::move(pruned.graph));
  return made;
}

absl::StatusOr<ProgramAttr::Gradient> ProgramAttr::BuildGradient(
    const OpRegistry& registry, const std::vector<bool>& wanted_leaves,
    const std::vector<bool>& given_outputs) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto key = std::make_pair(wanted_leaves, given_outputs);
  const auto at = gradients_.find(key);
  if (at != gradients_.end()) return at->second;
  PLUMB_ASSIGN_OR_RETURN(Gradient made, MakeGradient(registry, wanted_leaves, given_outputs));
  return gradients_.emplace(key, std::move(made)).first->second;
}

std::vector<ValueId> AddProgramGradient(GraphBuilder& b, const Node& node,
                                        absl::Span<const ValueId> d_outputs,
                                        const std::vector<bool>& wanted) {
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  std::vector<ValueId> operands = node.inputs;  // operands of the gradient: the node's inputs, then
                                                // output gradients
  std::vector<bool> given;
  for (const ValueId dy : d_outputs) {
    given.push_back(dy != kNoValue);
    if (given.back()) operands.push_back(dy);
  }
  const absl::StatusOr<ProgramAttr::Gradient> gradient =
      GetProgram(node.attrs).BuildGradient(b.registry(), wanted, given);
  if (!gradient.ok()) {
    b.Fail(gradient.status());
    return d_inputs;
  }
  if (gradient->leaves.empty()) return d_inputs;
  std::vector<ValueId> inputs;
  for (const size_t i : gradient->inputs) inputs.push_back(operands[i]);
  const std::shared_ptr<const AttrObject> attr = gradient->program;
  const std::vector<ValueId> outputs =
      b.ApplyAll("program", std::move(inputs), {{kGraph, attr}}, "program_grad");
  for (size_t k = 0; k < gradient->leaves.size(); ++k) d_inputs[gradient->leaves[k]] = outputs[k];
  return d_inputs;
}

}  // namespace plumb
