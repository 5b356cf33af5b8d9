// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/probe.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/bf16.h"
#include "runtime/base/check.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/model/build.h"
#include "runtime/ops/attention_figures.h"

namespace plumb {
namespace {

using Kind = ProbePoint::Kind;
using Reading = ProbePoint::Reading;

constexpr char kGradientPrefix[] = "grad.";
constexpr char kParameterPrefix[] = "param.";

// Globs that have a name as a group. Some models have no match for some of these.
constexpr const char* kDefaultGlobs[] = {"*.residual",        "*.residual.*", "*.out",
                                         "*.context",         "logits",       "grad.*.residual",
                                         "grad.*.residual.*", "grad.logits",  "param.*"};
constexpr const char* kAttentionGlobs[] = {"*.entropy", "*.max_logit"};
constexpr const char* kSublayerGlobs[] = {"*.attention.o", "*.mlp.down"};
constexpr struct {
  const char* name;
  absl::Span<const char* const> globs;
} kGroups[] = {
    {"default", kDefaultGlobs}, {"attention", kAttentionGlobs}, {"sublayers", kSublayerGlobs}};

constexpr size_t kProductWeight = 1, kProductAddend = 3;  // operands of matmul_add

// Returns true for "norm.out.1": a further output of a node (statistics for the backward pass), or
// one of several parts of a gradient.
bool IsSecondary(absl::string_view name) {
  const absl::string_view last = name.substr(name.rfind('.') + 1);
  return std::all_of(last.begin(), last.end(),
                     [](unsigned char c) { return absl::ascii_isdigit(c); });
}

bool IsProbed(const Value& value) {
  return value.kind == ValueKind::kComputed && IsFloating(value.type.dtype) &&
         !IsSecondary(value.name);
}

bool Matches(absl::string_view glob, absl::string_view text) {
  // The last star and the end of its current match, for backtracking.
  size_t g = 0, t = 0, star = absl::string_view::npos, swallowed = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      swallowed = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g, ++t;
    } else if (star != absl::string_view::npos) {
      g = star + 1;
      t = ++swallowed;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == absl::string_view::npos;
}

// Appends the points of values that a node, which computes `value`, does not store.
void AddComputedPoints(const Graph& graph, const Node& node, const Value& value,
                       std::vector<ProbePoint>* points) {
  absl::string_view name = value.name;
  if (node.op->name == "attention" && absl::ConsumeSuffix(&name, ".context")) {
    points->push_back(
        {Kind::kActivation, absl::StrCat(name, ".entropy"), value.name, Reading::kEntropy});
    points->push_back(
        {Kind::kActivation, absl::StrCat(name, ".max_logit"), value.name, Reading::kMaxLogit});
  }
  if (node.op->name != "matmul_add") return;
  absl::string_view weight = graph.value(node.inputs[kProductWeight]).name;
  if (graph.value(node.inputs[kProductAddend]).kind == ValueKind::kComputed &&
      absl::ConsumeSuffix(&weight, ".weight")) {
    points->push_back({Kind::kActivation, std::string(weight), value.name, Reading::kProduct});
  }
}

float GetElement(const TensorType& type, const void* data, size_t i) {
  return type.dtype == DType::kBF16 ? FloatFromBf16(static_cast<const uint16_t*>(data)[i])
                                    : static_cast<const float*>(data)[i];
}

// Computes the entropies of an attention's queries, then their largest logits.
void ComputeFigures(const Executable& executable, const Node& node, int threads, float* figures) {
  const Graph& graph = executable.graph();
  absl::InlinedVector<const TensorType*, 6> types;
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNoValue ? nullptr : &graph.value(id).type);
  }
  const absl::StatusOr<AttentionShape> shape = ReadAttentionShape({types, {}, node.attrs});
  PLUMB_CHECK(shape.ok(), "the node was checked when it was made");
  const auto data = [&](size_t i) -> const void* {
    const bool is_given = i < node.inputs.size() && node.inputs[i] != kNoValue;
    return is_given ? executable.GetData(node.inputs[i]) : nullptr;
  };
  AttentionOperands operands;
  operands.q = data(0);
  operands.k = data(1);
  operands.is_bf16 = types[0]->dtype == DType::kBF16;
  operands.sinks = static_cast<const float*>(data(3));
  operands.lengths = static_cast<const int32_t*>(data(4));
  operands.key_bias = static_cast<const float*>(data(5));
  operands.lse = static_cast<const float*>(executable.GetData(node.outputs[1]));
  const int64_t queries = shape->batch * shape->heads * shape->tokens;
  ComputeAttentionFigures(*shape, operands, threads, figures, figures + queries);
}

using Ids = absl::flat_hash_map<absl::string_view, ValueId>;

Ids IdsByName(const Graph& graph) {
  Ids ids;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    ids.emplace(graph.values[id].name, static_cast<ValueId>(id));
  }
  return ids;
}

// Finds the value of the optimized graph that is the gradient of a forward value. A value whose
// only reader is a plain sum has the gradient of that sum, which has the sum's name.
class Gradients {
 public:
  Gradients(const Graph& forward, const Graph& optimized)
      : forward_(forward),
        optimized_ids_(IdsByName(optimized)),
        forward_ids_(IdsByName(forward)),
        readers_(forward.values.size(), 0),
        reader_(forward.values.size(), -1) {
    for (size_t i = 0; i < forward.nodes.size(); ++i) {
      for (const ValueId id : forward.nodes[i].inputs) {
        if (id == kNoValue) continue;
        ++readers_[static_cast<size_t>(id)];
        reader_[static_cast<size_t>(id)] = static_cast<int32_t>(i);
      }
    }
  }

  // Returns the name of a value's gradient, "" if there is none.
  std::string GetName(const std::string& value) const {
    const std::string gradient = absl::StrCat(kGradientPrefix, value);
    if (optimized_ids_.count(gradient) > 0) return gradient;
    const auto at = forward_ids_.find(value);
    if (at == forward_ids_.end() || readers_[static_cast<size_t>(at->second)] != 1) return "";
    const Node& node =
        forward_.nodes[static_cast<size_t>(reader_[static_cast<size_t>(at->second)])];
    if (node.op->name != "combine") return "";
    const size_t term = static_cast<size_t>(
        std::find(node.inputs.begin(), node.inputs.end(), at->second) - node.inputs.begin());
    if (node.attrs.GetDoubles("coefs")[term] != 1) return "";
    return GetName(forward_.value(node.outputs[0]).name);
  }

 private:
  const Graph& forward_;
  const Ids optimized_ids_, forward_ids_;
  std::vector<int> readers_;     // indexed by ValueId: number of reads
  std::vector<int32_t> reader_;  // indexed by ValueId: last node that reads it
};

absl::string_view Prefix(Kind kind) {
  return kind == Kind::kGradient    ? kGradientPrefix
         : kind == Kind::kParameter ? kParameterPrefix
                                    : "";
}

// Marks the points that a glob matches. Returns true if there are any.
bool Choose(absl::string_view glob, const std::vector<ProbePoint>& points,
            std::vector<bool>* chosen) {
  const Kind kind = absl::ConsumePrefix(&glob, kGradientPrefix)    ? Kind::kGradient
                    : absl::ConsumePrefix(&glob, kParameterPrefix) ? Kind::kParameter
                                                                   : Kind::kActivation;
  bool any = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].kind != kind || !Matches(glob, points[i].name)) continue;
    any = (*chosen)[i] = true;
  }
  return any;
}

std::vector<ProbePoint> Take(std::vector<ProbePoint> points, const std::vector<bool>& chosen) {
  std::vector<ProbePoint> taken;
  for (size_t i = 0; i < points.size(); ++i) {
    if (chosen[i]) taken.push_back(std::move(points[i]));
  }
  return taken;
}

}  // namespace

std::string ProbePoint::FullName() const { return absl::StrCat(Prefix(kind), name); }

std::vector<ProbePoint> DefaultProbePoints(std::vector<ProbePoint> points) {
  std::vector<bool> chosen(points.size(), false);
  for (const char* glob : kDefaultGlobs) Choose(glob, points, &chosen);
  return Take(std::move(points), chosen);
}

namespace {

// Returns the points of a program, without `gradients` those of activations only.
absl::StatusOr<std::vector<ProbePoint>> ListProgramPoints(const ModelContext& context,
                                                          const BuildOptions& options,
                                                          bool gradients) {
  PLUMB_ASSIGN_OR_RETURN(const Graph forward,
                         BuildForward(context.model, context.parameters, *context.ops, options));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<StreamPoint> streams,
                         ListStreams(context.model, context.parameters, *context.ops, options));
  PLUMB_ASSIGN_OR_RETURN(const Graph graph, BuildProgram(context, options, gradients));

  // Values in execution order, each followed by its names as a stream.
  const Ids ids = IdsByName(graph);
  absl::flat_hash_map<ValueId, std::vector<std::string>> stream_names;
  for (const StreamPoint& point : streams) {
    const auto at = ids.find(point.value);
    if (at != ids.end()) stream_names[at->second].push_back(point.name);
  }
  std::vector<ProbePoint> points;
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      const Value& value = graph.value(id);
      if (!IsProbed(value) || absl::StartsWith(value.name, kGradientPrefix)) continue;
      points.push_back({Kind::kActivation, value.name, value.name});
      for (const std::string& name : stream_names[id]) {
        points.push_back({Kind::kActivation, name, value.name});
      }
      AddComputedPoints(graph, node, value, &points);
    }
  }
  if (!gradients) return points;
  const Gradients names(forward, graph);
  const size_t activations = points.size();
  for (size_t i = 0; i < activations; ++i) {
    if (points[i].reading != Reading::kValue) continue;
    std::string gradient = names.GetName(points[i].value);
    if (!gradient.empty()) points.push_back({Kind::kGradient, points[i].name, std::move(gradient)});
  }
  for (const ParameterLayout::Entry& entry :
       ParameterLayout(context.parameters, options.frozen).entries) {
    if (!entry.is_frozen()) points.push_back({Kind::kParameter, entry.name, entry.name});
  }
  return points;
}

}  // namespace

absl::StatusOr<std::vector<ProbePoint>> ListProbePoints(const ModelContext& context,
                                                        WeightFormat format,
                                                        const std::vector<std::string>& frozen) {
  BuildOptions options;
  options.frozen = frozen;
  options.weights = format;
  options.program = Program::kTrain;
  options.seq = context.model.dims.context_length;
  return ListProgramPoints(context, options, /*gradients=*/true);
}

absl::StatusOr<std::vector<ProbePoint>> SelectProbePoints(std::vector<ProbePoint> points,
                                                          absl::Span<const std::string> globs) {
  std::vector<bool> chosen(points.size(), false);
  for (const std::string& glob : globs) {
    const auto* const group = std::find_if(std::begin(kGroups), std::end(kGroups),
                                           [&](const auto& named) { return named.name == glob; });
    if (group != std::end(kGroups)) {
      for (const char* member : group->globs) Choose(member, points, &chosen);
      continue;
    }
    if (Choose(glob, points, &chosen)) continue;
    std::vector<std::string> names;
    for (const ProbePoint& point : points) names.push_back(point.FullName());
    return absl::InvalidArgumentError(
        absl::StrCat("no probe point matches \"", glob, "\"", DidYouMean(glob, names)));
  }
  return Take(std::move(points), chosen);
}

absl::StatusOr<std::unique_ptr<Probe>> Probe::Create(const ModelContext& context,
                                                     absl::Span<const std::string> globs,
                                                     WeightFormat format,
                                                     const std::vector<std::string>& frozen) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<ProbePoint> points, ListProbePoints(context, format, frozen));
  return Of(std::move(points), globs);
}

absl::StatusOr<std::unique_ptr<Probe>> Probe::CreateForward(const ModelContext& context,
                                                            const BuildOptions& program,
                                                            absl::Span<const std::string> globs) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<ProbePoint> points,
                         ListProgramPoints(context, program, /*gradients=*/false));
  return Of(std::move(points), globs);
}

absl::StatusOr<std::unique_ptr<Probe>> Probe::Of(std::vector<ProbePoint> points,
                                                 absl::Span<const std::string> globs) {
  if (globs.empty()) {
    return std::unique_ptr<Probe>(new Probe(DefaultProbePoints(std::move(points))));
  }
  PLUMB_ASSIGN_OR_RETURN(points, SelectProbePoints(std::move(points), globs));
  return std::unique_ptr<Probe>(new Probe(points));
}

Probe::Probe(const std::vector<ProbePoint>& points) {
  absl::flat_hash_map<std::pair<std::string, int>, size_t> slots;
  const auto slot_of = [&](const ProbePoint& point) {
    const auto [at, is_new] =
        slots.try_emplace({point.value, static_cast<int>(point.reading)}, slots_.size());
    if (is_new) slots_.push_back({point.value, point.reading});
    return at->second;
  };
  for (const ProbePoint& point : points) {
    switch (point.kind) {
      case Kind::kActivation:
        activation_slots_.push_back(slot_of(point));
        result_.activations.push_back({point.name, {}});
        break;
      case Kind::kGradient:
        gradient_slots_.push_back(slot_of(point));
        result_.gradients.push_back({point.name, {}});
        break;
      case Kind::kParameter:
        result_.parameters.push_back({point.name, {}, {}});
        break;
    }
  }
  slot_stats_.resize(slots_.size());
}

const Probe::Watch& Probe::FindWatch(const Executable& executable) {
  std::unique_ptr<Watch>& watch = watches_[&executable];
  if (watch != nullptr) return *watch;
  watch = std::make_unique<Watch>();
  const Graph& graph = executable.graph();
  const Ids ids = IdsByName(graph);
  std::vector<std::pair<ValueId, Read>> found;
  absl::flat_hash_map<ValueId, std::shared_ptr<std::vector<float>>> figures;  // of attentions
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const auto at = ids.find(slots_[slot].value);
    if (at == ids.end()) continue;
    const Value& value = graph.value(at->second);
    const Node& node = graph.nodes[static_cast<size_t>(value.producer)];
    Read read;
    read.slot = slot;
    switch (slots_[slot].reading) {
      case Reading::kValue:
        break;
      case Reading::kEntropy:
      case Reading::kMaxLogit: {
        std::shared_ptr<std::vector<float>>& shared = figures[at->second];
        read.is_first = shared == nullptr;
        if (read.is_first) {
          const int64_t queries = graph.value(node.outputs[1]).type.num_elements();
          shared = std::make_shared<std::vector<float>>(static_cast<size_t>(2 * queries));
        }
        read.computed = shared;
        break;
      }
      case Reading::kProduct:
        read.computed =
            std::make_shared<std::vector<float>>(static_cast<size_t>(value.type.num_elements()));
        read.is_first = true;
        found.emplace_back(node.inputs[kProductAddend], read);
        read.is_first = false;
    }
    found.emplace_back(at->second, std::move(read));
  }
  std::stable_sort(found.begin(), found.end(), [&graph](const auto& a, const auto& b) {
    return graph.value(a.first).producer < graph.value(b.first).producer;
  });
  for (auto& [value, read] : found) {
    watch->values.push_back(value);
    watch->reads.push_back(std::move(read));
  }
  return *watch;
}

void Probe::Begin() {
  std::fill(slot_stats_.begin(), slot_stats_.end(), TensorStats());
  result_.diverged = false;
}

absl::Status Probe::Run(const Executable& executable, int threads) {
  const Watch& watch = FindWatch(executable);
  return executable.RunAndObserve(threads, watch.values, [&](size_t i, const void* /*data*/) {
    ReadValue(executable, watch.values[i], watch.reads[i], threads);
  });
}

void Probe::ReadValue(const Executable& executable, ValueId id, const Read& read, int threads) {
  const Graph& graph = executable.graph();
  const Value& value = graph.value(id);
  const Node& node = graph.nodes[static_cast<size_t>(value.producer)];
  const void* data = executable.GetData(id);
  TensorType type = value.type;
  switch (slots_[read.slot].reading) {
    case Reading::kValue:
      break;
    case Reading::kEntropy:
    case Reading::kMaxLogit:
      if (read.is_first) ComputeFigures(executable, node, threads, read.computed->data());
      type = graph.value(node.outputs[1]).type;
      data = read.computed->data();
      if (slots_[read.slot].reading == Reading::kMaxLogit) {
        data = read.computed->data() + type.num_elements();
      }
      break;
    case Reading::kProduct:
      for (size_t e = 0; e < read.computed->size(); ++e) {
        float& x = (*read.computed)[e];
        x = read.is_first ? GetElement(type, data, e) : GetElement(type, data, e) - x;
      }
      if (read.is_first) return;
      type = F32(type.shape);
      data = read.computed->data();
  }
  const int64_t n = type.num_elements();
  const TensorStats stats = type.dtype == DType::kBF16
                                ? ComputeStats(static_cast<const uint16_t*>(data), n, threads)
                                : ComputeStats(static_cast<const float*>(data), n, threads);
  slot_stats_[read.slot].Add(stats);
  if (observer_ != nullptr) Observe(read.slot, type, data, stats);
}

void Probe::SetObserver(ProbeObserver observer) { observer_ = std::move(observer); }

void Probe::Observe(size_t slot, const TensorType& type, const void* data,
                    const TensorStats& stats) {
  const auto tell = [&](const std::vector<size_t>& slots,
                        const std::vector<ProbeResult::Tensor>& tensors,
                        ObservedTensor::Kind kind) {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == slot) observer_({kind, &tensors[i].name, stats, type, data});
    }
  };
  tell(activation_slots_, result_.activations, ObservedTensor::Kind::kActivation);
  tell(gradient_slots_, result_.gradients, ObservedTensor::Kind::kGradient);
}

const ProbeResult& Probe::End(int64_t step, const ParameterStore& parameters,
                              const ParameterLayout& layout, const float* gradients, int threads) {
  result_.step = step;
  for (size_t i = 0; i < activation_slots_.size(); ++i) {
    result_.activations[i].stats = slot_stats_[activation_slots_[i]];
  }
  for (size_t i = 0; i < gradient_slots_.size(); ++i) {
    result_.gradients[i].stats = slot_stats_[gradient_slots_[i]];
  }
  // Both lists are in the order of the layout.
  size_t i = 0;
  const std::vector<ParameterLayout::Entry>& entries = layout.entries;
  for (size_t e = 0; e < entries.size(); ++e) {
    if (i == result_.parameters.size()) break;
    const ParameterLayout::Entry& entry = entries[e];
    ProbeResult::Parameter& parameter = result_.parameters[i];
    if (entry.name != parameter.name) continue;
    const int64_t n = entry.end - entry.begin;
    parameter.value = parameters.is_split(e) ? ComputeStats(parameters.split(e), n, threads)
                                             : ComputeStats(parameters.floats(e), n, threads);
    parameter.gradient = ComputeStats(gradients + entry.begin, n, threads);
    if (observer_ != nullptr) {
      const TensorType type = F32(entry.shape);
      observer_({ObservedTensor::Kind::kParameter, &parameter.name, parameter.value, type,
                 parameters.is_split(e) ? nullptr : parameters.floats(e)});
      observer_({ObservedTensor::Kind::kParameterGradient, &parameter.name, parameter.gradient,
                 type, gradients + entry.begin});
    }
    ++i;
  }
  return result_;
}

}  // namespace plumb
