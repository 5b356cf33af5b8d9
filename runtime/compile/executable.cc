// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/executable.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/check.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

bool IsAligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % kAlignment == 0; }

bool AllFinite(const TensorType& type, const void* data) {
  if (type.dtype == DType::kBF16) {
    const uint16_t* values = static_cast<const uint16_t*>(data);
    return std::all_of(values, values + type.num_elements(),
                       [](uint16_t h) { return std::isfinite(FloatFromBf16(h)); });
  }
  if (type.dtype != DType::kF32) return true;
  const float* numbers = static_cast<const float*>(data);
  return std::all_of(numbers, numbers + type.num_elements(),
                     [](float f) { return std::isfinite(f); });
}

// Returns an op's name and, for a norm, its configuration.
std::string OpText(const Node& node) {
  const std::string& name = node.op->name;
  return node.attrs.Has("instance")
             ? absl::StrCat(name, " ", node.attrs.GetObject("instance")->ToString())
             : name;
}

int64_t OperandBytes(const Graph& graph, const Node& node) {
  absl::flat_hash_set<ValueId> seen;
  int64_t bytes = 0;
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && seen.insert(id).second) bytes += graph.value(id).type.bytes();
  }
  for (const ValueId id : node.outputs) bytes += graph.value(id).type.bytes();
  for (const auto& [out, in] : node.op->updates) {
    bytes -= graph.value(node.outputs[static_cast<size_t>(out)]).type.bytes();
  }
  return bytes;
}

// Returns text that is equal for nodes whose kernels do the same.
std::string KernelKey(const Graph& graph, const Node& node) {
  std::string key = node.op->name;
  for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
    absl::StrAppend(&key, "(");
    for (const ValueId id : *ids) {
      absl::StrAppend(&key, id == kNoValue ? "_" : graph.value(id).type.ToString(), ",");
    }
  }
  return absl::StrCat(key, node.attrs.ToString());
}

double Flops(const Graph& graph, const Node& node) {
  if (node.op->flops == nullptr) return 0;
  return node.op->flops({GetTypes(graph, node.inputs), GetTypes(graph, node.outputs), node.attrs});
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledProgram>> CompiledProgram::Of(Graph graph) {
  PLUMB_RETURN_IF_ERROR(Verify(graph));
  const auto program = std::make_shared<CompiledProgram>();
  PLUMB_ASSIGN_OR_RETURN(program->plan, PlanMemory(graph));
  program->graph = std::move(graph);
  PLUMB_RETURN_IF_ERROR(program->MakeKernels());
  program->NameBindings();
  return std::shared_ptr<const CompiledProgram>(program);
}

absl::Status CompiledProgram::MakeKernels() {
  uses.resize(graph.values.size());
  absl::flat_hash_map<std::string, std::shared_ptr<const Kernel>> made;
  for (const Node& node : graph.nodes) {
    std::shared_ptr<const Kernel>& kernel = made[KernelKey(graph, node)];
    if (kernel == nullptr) {
      absl::StatusOr<std::unique_ptr<Kernel>> created = node.op->make_kernel(
          {GetTypes(graph, node.inputs), GetTypes(graph, node.outputs), node.attrs});
      if (!created.ok()) {
        return Annotate(created.status(), absl::StrCat(plumb::ToString(graph, node), ": "));
      }
      kernel = *std::move(created);
      scratch_bytes = std::max(scratch_bytes, kernel->scratch_bytes());
    }
    kernels.push_back(kernel);
    for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id != kNoValue) uses[Index(id)].push_back(static_cast<int32_t>(operands));
        ++operands;
      }
    }
  }
  scratch_offset = AlignUp(plan.arena_bytes);
  return absl::OkStatus();
}

void CompiledProgram::NameBindings() {
  for (size_t i = 0; i < plan.externals.size(); ++i) {
    const Value& value = graph.value(plan.externals[i]);
    if (value.kind != ValueKind::kComputed) bindings.emplace(value.name, i);
  }
  // Copied outputs have their own slots, after those of the plan.
  slots = plan.externals.size();
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    const GraphOutput& output = graph.outputs[k];
    const auto& copied = plan.copied_outputs;
    if (std::find(copied.begin(), copied.end(), static_cast<int32_t>(k)) != copied.end()) {
      bindings.emplace(output.name, slots++);
      continue;
    }
    const size_t slot = Index(plan.places[Index(output.value)].external);
    if (plan.externals[slot] == output.value) bindings.emplace(output.name, slot);
  }
  values_of_slot.resize(plan.externals.size());
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (plan.places[id].kind != MemoryPlan::Place::Kind::kExternal) continue;
    values_of_slot[Index(plan.places[id].external)].push_back(static_cast<ValueId>(id));
  }
}

Executable::Executable(std::shared_ptr<const CompiledProgram> program)
    : program_(std::move(program)),
      graph_(program_->graph),
      plan_(program_->plan),
      scratch_offset_(program_->scratch_offset),
      operands_(program_->operands, nullptr),  // never resized: steps point into it
      bound_(program_->slots, nullptr),
      unbound_(static_cast<int32_t>(program_->slots)) {
  void** next = operands_.data();
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    void** const in = next;
    void** const out = in + graph_.nodes[i].inputs.size();
    next = out + graph_.nodes[i].outputs.size();
    steps_.push_back({program_->kernels[i].get(), in, out});
  }
}

absl::StatusOr<std::unique_ptr<Executable>> Executable::Compile(Graph graph) {
  PLUMB_ASSIGN_OR_RETURN(auto program, CompiledProgram::Of(std::move(graph)));
  return std::make_unique<Executable>(std::move(program));
}

void Executable::BindWorkspace(void* workspace) {
  PLUMB_CHECK(IsAligned(workspace), "the workspace is not aligned to 64 bytes");
  workspace_ = static_cast<std::byte*>(workspace);
  if (workspace_ == nullptr) return;  // unbound: Run fails until another is bound
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    if (plan_.places[id].kind != MemoryPlan::Place::Kind::kArena) continue;
    for (const int32_t use : program_->uses[id])
      operands_[Index(use)] = GetData(static_cast<ValueId>(id));
  }
}

int64_t Executable::SlotAlignment(size_t slot) const {
  if (slot >= plan_.externals.size() || program_->values_of_slot[slot].empty()) return kAlignment;
  const Value& value = graph_.value(program_->values_of_slot[slot].front());
  // Kernels read matrices, and the states of each sequence, row by row, at any alignment of rows.
  const bool has_rows = value.kind == ValueKind::kState ||
                        (value.kind == ValueKind::kParameter && value.type.shape.rank() >= 2);
  return has_rows ? SizeOf(value.type.dtype) : kAlignment;
}

absl::Status Executable::Bind(absl::string_view name, void* data) {
  const auto at = program_->bindings.find(name);
  if (at == program_->bindings.end()) {
    const ValueId id = graph_.FindOutput(name);
    if (id != kNoValue && plan_.places[Index(id)].kind == MemoryPlan::Place::Kind::kExternal) {
      return absl::NotFoundError(absl::StrCat("\"", name, "\" is stored in ",
                                              PlaceName(plan_, graph_, id), "; bind that"));
    }
    return absl::NotFoundError(
        absl::StrCat("the program has no parameter, input, state or output \"", name, "\""));
  }
  const size_t slot = at->second;
  const int64_t alignment = SlotAlignment(slot);
  if (data == nullptr ||
      reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory for ", name, " is not aligned to ", alignment, " bytes"));
  }
  if (bound_[slot] == nullptr) --unbound_;
  bound_[slot] = data;
  if (slot >= plan_.externals.size()) return absl::OkStatus();
  for (const ValueId id : program_->values_of_slot[slot]) {
    for (const int32_t use : program_->uses[Index(id)]) operands_[Index(use)] = data;
  }
  return absl::OkStatus();
}

absl::Status Executable::CheckBound() const {
  if (unbound_ == 0 && (workspace_ != nullptr || workspace_bytes() == 0)) return absl::OkStatus();
  std::vector<std::string> missing;
  for (const auto& [name, slot] : program_->bindings) {
    if (bound_[slot] == nullptr) missing.push_back(name);
  }
  std::sort(missing.begin(), missing.end());
  if (missing.empty()) missing.push_back("the workspace");
  return absl::FailedPreconditionError(
      absl::StrCat("not bound to memory: ", absl::StrJoin(missing, ", ")));
}

absl::Status Executable::RunStep(const Step& step, int threads) const {
  if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
    return absl::CancelledError("the run was cancelled");
  }
  absl::Status status =
      step.kernel->Run({step.in, step.out, workspace_ + scratch_offset_, threads});
  return status.ok() ? status : StepError(step, status);
}

absl::Status Executable::StepError(const Step& step, const absl::Status& status) const {
  const Node& node = graph_.nodes[static_cast<size_t>(&step - steps_.data())];
  return Annotate(status, absl::StrCat(plumb::ToString(graph_, node), ": "));
}

absl::Status Executable::Run(int threads) const {
  PLUMB_RETURN_IF_ERROR(CheckBound());
  const ScopedNoDenormals no_denormals;
  for (const Step& step : steps_) PLUMB_RETURN_IF_ERROR(RunStep(step, threads));
  CopyOutputs();
  return absl::OkStatus();
}

absl::Status Executable::Run(int threads, AfterNode after) const {
  PLUMB_RETURN_IF_ERROR(CheckBound());
  for (size_t i = 0; i < steps_.size(); ++i) {
    {
      const ScopedNoDenormals no_denormals;
      PLUMB_RETURN_IF_ERROR(RunStep(steps_[i], threads));
    }
    after(i);
  }
  CopyOutputs();
  return absl::OkStatus();
}

size_t Executable::NodeOfOutput(absl::string_view output) const {
  const auto at = std::find_if(graph_.outputs.begin(), graph_.outputs.end(),
                               [output](const GraphOutput& each) { return each.name == output; });
  PLUMB_CHECK(at != graph_.outputs.end(), "the program has the output");
  const auto& copied = plan_.copied_outputs;
  const auto k = static_cast<int32_t>(at - graph_.outputs.begin());
  const int32_t last = plan_.places[Index(at->value)].last;
  if (last < 0 || std::find(copied.begin(), copied.end(), k) != copied.end()) return steps_.size();
  return Index(last);
}

absl::Status Executable::RunAndObserve(int threads, absl::Span<const ValueId> values,
                                       Observer observe) const {
  size_t next = 0;
  PLUMB_RETURN_IF_ERROR(Run(threads, [&](size_t i) {
    for (; next < values.size() && Index(graph_.value(values[next]).producer) == i; ++next) {
      observe(next, GetData(values[next]));
    }
  }));
  PLUMB_CHECK(next == values.size(), "observed values are computed and sorted by producer");
  return absl::OkStatus();
}

absl::Status Executable::RunAndTime(int threads, absl::Span<double> seconds_by_node,
                                    const AfterNode* after) const {
  using Clock = std::chrono::steady_clock;
  PLUMB_CHECK(seconds_by_node.size() == steps_.size(), "there is one time for each node");
  // A node starts at the end of the one before it, so no time between them is lost.
  Clock::time_point start = Clock::now();
  return Run(threads, [&](size_t i) {
    const Clock::time_point end = Clock::now();
    seconds_by_node[i] += std::chrono::duration<double>(end - start).count();
    start = end;
    if (after == nullptr) return;
    (*after)(i);
    start = Clock::now();
  });
}

void Executable::CopyOutputs() const {
  size_t slot = plan_.externals.size();
  for (const int32_t k : plan_.copied_outputs) {
    const ValueId id = graph_.outputs[Index(k)].value;
    std::memcpy(bound_[slot++], GetData(id), static_cast<size_t>(graph_.value(id).type.bytes()));
  }
}

void* Executable::GetData(ValueId id) const {
  const MemoryPlan::Place& place = plan_.places[Index(id)];
  return place.kind == MemoryPlan::Place::Kind::kArena ? workspace_ + place.offset
                                                       : bound_[Index(place.external)];
}

absl::StatusOr<Executable::NonFinite> Executable::RunAndFindNonFinite(int threads) const {
  PLUMB_RETURN_IF_ERROR(CheckBound());
  const auto is_finite = [this](ValueId id) {
    return AllFinite(graph_.value(id).type, GetData(id));
  };
  for (const ValueId id : plan_.externals) {
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::kComputed && !is_finite(id)) return NonFinite{value.name, ""};
  }
  const ScopedNoDenormals no_denormals;
  NonFinite first;
  for (size_t i = 0; i < steps_.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(RunStep(steps_[i], threads));
    const Node& node = graph_.nodes[i];
    for (const ValueId id : node.outputs) {
      if (first.name.empty() && !is_finite(id)) first = {graph_.value(id).name, OpText(node)};
    }
  }
  CopyOutputs();
  return first;
}

std::string Executable::ToString() const {
  std::string text;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const auto append_type = [this](std::string* out, ValueId id) {
      out->append(id == kNoValue ? "_" : graph_.value(id).type.ToString());
    };
    const auto append_place = [this](std::string* out, ValueId id) {
      absl::StrAppend(out, graph_.value(id).type.ToString(), " ", graph_.value(id).name, " @ ",
                      PlaceName(plan_, graph_, id));
    };
    absl::StrAppend(&text, i, " ", node.op->name, "(",
                    absl::StrJoin(node.inputs, ", ", append_type), ") -> ",
                    absl::StrJoin(node.outputs, ", ", append_place));
    if (program_->kernels[i]->scratch_bytes() > 0) {
      absl::StrAppend(&text, ", scratch ", program_->kernels[i]->scratch_bytes());
    }
    const std::string how = program_->kernels[i]->ToString();
    if (!how.empty()) absl::StrAppend(&text, "\n    ", how);
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "workspace ", workspace_bytes(), " bytes: arena ", plan_.arena_bytes,
                  ", scratch ", program_->scratch_bytes, "\n");
  return text;
}

std::vector<NodeTime> NodeCosts(const Graph& graph) {
  std::vector<NodeTime> costs;
  costs.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    NodeTime cost;
    cost.op = node.op->name;
    if (!node.outputs.empty()) cost.name = graph.value(node.outputs[0]).name;
    cost.flops = Flops(graph, node);
    cost.bytes = OperandBytes(graph, node);
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace plumb
