#include "runtime/tools/model.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/compile/memory_plan.h"
#include "runtime/io/safetensors.h"
#include "runtime/model/describe.h"
#include "runtime/model/update_plan.h"
#include "runtime/session/evaluate.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"
#include "runtime/session/train_memory.h"
#include "runtime/spec/train_spec.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_probe.h"
#include "runtime/tools/run_room.h"

namespace plumb {
namespace {

const char* RoleName(ParameterSpec::Role role) {
  switch (role) {
    case ParameterSpec::Role::kWeight:
      return "weight";
    case ParameterSpec::Role::kNorm:
      return "norm";
    case ParameterSpec::Role::kLearned:
      break;
  }
  return "learned";
}

// `tensor`: a ParameterSpec or a BufferSpec.
template <class Tensor>
TensorInfo ToPublic(const Tensor& tensor, const char* role) {
  TensorInfo info;
  info.name = tensor.name;
  info.dtype = DTypeName(DType::kF32);
  info.shape.assign(tensor.shape.dims().begin(), tensor.shape.dims().end());
  info.init = tensor.init.ToString();
  info.role = role;
  info.elements = tensor.shape.num_elements();
  return info;
}

LayerGroupInfo ToPublic(LayerGroup group) {
  LayerGroupInfo info;
  info.first = group.first;
  info.last = group.last;
  info.placement = std::move(group.placement);
  info.doc = std::move(group.doc);
  info.equations = std::move(group.equations);
  info.scalars = std::move(group.scalars);
  info.norms = std::move(group.norms);
  info.jacobian = std::move(group.jacobian);
  return info;
}

UpdateInfo ToPublic(const UpdateGroup& group, const UpdatePlan& plan, const TrainSpec& spec,
                    const std::vector<ParameterSpec>& parameters) {
  const ParameterUpdate& update = group.update;
  UpdateInfo info;
  if (update.rule >= 0) {
    const Text& match = spec.rules[static_cast<size_t>(update.rule)].match;
    info.rule = match.value;
    info.place = match.place.ToString();
  }
  for (const size_t i : group.parameters) info.tensors.push_back(parameters[i].name);
  info.optimizer = update.optimizer == OptimizerKind::kMuon ? "Muon" : "AdamW";
  info.lr_scale = update.lr_scale;
  info.lr_offset = update.lr_offset;
  info.learning_rate = update.LearningRate(spec.learning_rate);
  info.weight_decay = update.weight_decay;
  info.momentum = spec.muon.momentum;
  info.beta1 = update.beta1;
  info.beta2 = update.beta2;
  info.eps = update.eps;
  info.clip = plan.clips[static_cast<size_t>(update.clip_group)];
  if (update.unit_length == UnitLength::kRows) info.unit_length = "rows";
  if (update.unit_length == UnitLength::kColumns) info.unit_length = "columns";
  info.clips_apart = update.clip_group > 0;
  return info;
}

std::string PositionsText(const ResolvedModel& model) {
  switch (model.positions) {
    case PositionKind::kLearned:
      return "learned";
    case PositionKind::kRope:
      return absl::StrCat("rope(theta=", model.rope_theta, ")");
    case PositionKind::kNone:
      break;
  }
  return "none";
}

std::vector<std::string> FullNames(const std::vector<ProbePoint>& points) {
  std::vector<std::string> names;
  for (const ProbePoint& point : points) names.push_back(point.FullName());
  return names;
}

// One line a point; a star before those that are probed by default.
absl::StatusOr<std::string> ProbesText(const ModelContext& context) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<ProbePoint> points, ListProbePoints(context));
  const std::vector<std::string> names = FullNames(DefaultProbePoints(points));
  const std::set<std::string> defaults(names.begin(), names.end());
  std::string text;
  for (const std::string& name : FullNames(points)) {
    absl::StrAppend(&text, defaults.count(name) > 0 ? "* " : "  ", name, "\n");
  }
  return text;
}

absl::StatusOr<TrainSpec> ReadRecipe(const std::string& path, const Overrides& overrides) {
  std::string text;
  if (!path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxTextBytes));
  }
  return ParseTrainSpec(text, path, overrides);
}

// Explain, but that it throws std::bad_alloc.
absl::StatusOr<std::string> ExplainStage(const ModelContext& context, const std::string& stage,
                                         int64_t batch, int64_t seq,
                                         const Overrides& train_overrides) {
  if (batch < 1) return absl::InvalidArgumentError("batch must be at least 1");
  if (seq < 1 || seq > context.model.dims.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("seq must be in 1..context_length, which is ",
                                                   context.model.dims.context_length));
  }
  PLUMB_ASSIGN_OR_RETURN(const TrainSpec spec, ParseTrainSpec("", "", train_overrides));
  BuildOptions options = TrainProgram(spec);
  options.batch = batch;
  options.seq = seq;
  if (stage == "graph" || stage == "grad") {
    PLUMB_ASSIGN_OR_RETURN(Graph graph,
                           BuildForward(context.model, context.parameters, *context.ops, options));
    if (stage == "graph") return ToString(graph);
    PLUMB_ASSIGN_OR_RETURN(graph, AddBackwardPass(std::move(graph), *context.ops));
    return ToString(graph);
  }
  if (stage == "prompt") {
    options.program = Program::kCached;
    PLUMB_ASSIGN_OR_RETURN(const Graph graph, BuildProgram(context, options, /*gradients=*/false));
    return ToString(graph);
  }
  if (stage == "probes") return ProbesText(context);
  if (stage != "optimized" && stage != "plan" && stage != "exec") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown stage \"", stage,
                     "\"; the stages are graph, grad, optimized, plan, exec, prompt, probes"));
  }
  PLUMB_ASSIGN_OR_RETURN(
      Graph graph, BuildProgram(context, options, /*gradients=*/true, TrainPasses(context, spec)));
  if (stage == "optimized") return ToString(graph);
  if (stage == "plan") {
    PLUMB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(graph));
    return ToString(plan, graph);
  }
  PLUMB_ASSIGN_OR_RETURN(const auto executable, Executable::Compile(std::move(graph)));
  return executable->ToString();
}

}  // namespace

absl::StatusOr<Spec> Spec::FromFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(ModelSpec spec, ModelSpec::FromFile(path));
  return Spec(std::make_shared<const ModelSpec>(std::move(spec)));
}

absl::StatusOr<Spec> Spec::FromText(const std::string& text, const std::string& name) {
  PLUMB_ASSIGN_OR_RETURN(ModelSpec spec, ModelSpec::FromText(text, name));
  return Spec(std::make_shared<const ModelSpec>(std::move(spec)));
}

absl::Status Spec::Set(const std::string& field, const std::string& value) {
  ModelSpec spec = *impl_;
  PLUMB_RETURN_IF_ERROR(spec.Set(field, value));
  impl_ = std::make_shared<const ModelSpec>(std::move(spec));
  return absl::OkStatus();
}

std::string Spec::ToText() const { return impl_->ToText(); }
int64_t Spec::vocab_size() const { return impl_->vocab_size(); }

struct Model::Impl {
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<ParameterStore> parameters;  // null until they are drawn or read
  int threads = 1;

  absl::Status RequireWeights() const {
    if (parameters != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError("the model has no weights yet: Init or LoadWeights first");
  }
  // As Model's, but that they throw std::bad_alloc.
  absl::StatusOr<ModelDescription> Describe() const;
  absl::StatusOr<TrainingMemory> PlanTraining(const std::string& train_path,
                                              const Overrides& train_overrides) const;
};

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

absl::StatusOr<std::unique_ptr<Model>> Model::Create(Runtime* runtime, const Spec& spec) {
  auto model = std::unique_ptr<Model>(new Model);
  PLUMB_ASSIGN_OR_RETURN(model->impl_->context, OrOutOfMemory("the model's description", [&] {
                           return runtime->impl().MakeContext(spec.impl());
                         }));
  for (const std::string& warning : model->impl_->context->model.warnings) {
    runtime->impl().Warn(warning);
  }
  model->impl_->threads = runtime->threads();
  return model;
}

absl::StatusOr<ModelDescription> Model::Describe() const {
  return OrOutOfMemory("the model's description", [this] { return impl_->Describe(); });
}

absl::StatusOr<ModelDescription> Model::Impl::Describe() const {
  const ResolvedModel& model = context->model;
  PLUMB_ASSIGN_OR_RETURN(StackDescription stack, DescribeStack(model));
  ModelDescription out;
  out.name = model.name;
  const ModelDims& d = model.dims;
  out.dims = {{"n_layer", d.n_layer},
              {"n_head", d.n_head},
              {"n_kv_head", d.n_kv_head},
              {"d_model", d.d_model},
              {"d_ff", d.d_ff},
              {"head_dim", d.head_dim},
              {"vocab_size", d.vocab_size},
              {"context_length", d.context_length}};
  out.positions = PositionsText(model);
  out.tied = model.tie_embeddings;
  out.begin = std::move(stack.begin);
  out.end = std::move(stack.end);
  for (LayerGroup& group : stack.groups) out.layers.push_back(ToPublic(std::move(group)));
  out.norm_sites = stack.routes.norm_sites;
  out.identity_route = stack.routes.identity.ToString();
  out.norms_before_head = stack.routes.identity.end_norms;
  for (const ParameterSpec& parameter : context->parameters) {
    out.tensors.push_back(ToPublic(parameter, RoleName(parameter.role)));
    out.parameters += out.tensors.back().elements;
  }
  for (const NormStateSpec& state : context->states) {
    for (const BufferSpec& buffer : state.buffers) {
      out.buffers.push_back(ToPublic(buffer, "buffer"));
      out.buffer_elements += out.buffers.back().elements;
    }
  }
  out.weight_bytes = out.parameters * static_cast<int64_t>(sizeof(float));
  return out;
}

absl::StatusOr<TrainingMemory> Model::PlanTraining(
    const std::string& train_path,
    const std::vector<std::pair<std::string, std::string>>& train_overrides) const {
  return OrOutOfMemory("the training program",
                       [&] { return impl_->PlanTraining(train_path, train_overrides); });
}

absl::StatusOr<std::vector<UpdateInfo>> Model::PlanUpdates(
    const std::string& train_path,
    const std::vector<std::pair<std::string, std::string>>& train_overrides) const {
  return OrOutOfMemory("the recipe", [&]() -> absl::StatusOr<std::vector<UpdateInfo>> {
    PLUMB_ASSIGN_OR_RETURN(const TrainSpec spec, ReadRecipe(train_path, train_overrides));
    const ModelContext& context = *impl_->context;
    PLUMB_ASSIGN_OR_RETURN(const UpdatePlan plan,
                           plumb::PlanUpdates(spec, context.model, context.parameters));
    std::vector<UpdateInfo> updates;
    for (const UpdateGroup& group : GroupUpdates(plan)) {
      updates.push_back(ToPublic(group, plan, spec, context.parameters));
    }
    return updates;
  });
}

absl::StatusOr<TrainingMemory> Model::Impl::PlanTraining(const std::string& train_path,
                                                         const Overrides& train_overrides) const {
  PLUMB_ASSIGN_OR_RETURN(const TrainSpec spec, ReadRecipe(train_path, train_overrides));
  const int64_t seq = context->model.dims.context_length;
  PLUMB_ASSIGN_OR_RETURN(const TrainMemory memory, PlanTrainMemory(*context, spec, seq));
  return ToPublic(memory, spec, seq);
}

absl::StatusOr<std::string> Model::Explain(
    const std::string& stage, int64_t batch, int64_t seq,
    const std::vector<std::pair<std::string, std::string>>& train_overrides) const {
  return OrOutOfMemory("the model's graph", [&] {
    return ExplainStage(*impl_->context, stage, batch, seq, train_overrides);
  });
}

absl::Status Model::Init(uint64_t seed) {
  return OrOutOfMemory("the parameters", [&] {
    const ModelContext& context = *impl_->context;
    impl_->parameters = std::make_unique<ParameterStore>(context.parameters, context.states);
    DrawParameters(context.parameters, context.states, seed, impl_->threads, *impl_->parameters);
    return absl::OkStatus();
  });
}

absl::Status Model::LoadWeights(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  return OrOutOfMemory("the weights", [&]() -> absl::Status {
    auto parameters =
        std::make_unique<ParameterStore>(impl_->context->parameters, impl_->context->states);
    PLUMB_RETURN_IF_ERROR(parameters->Read(file));
    impl_->parameters = std::move(parameters);
    return absl::OkStatus();
  });
}

absl::Status Model::SaveWeights(const std::string& path) const {
  PLUMB_RETURN_IF_ERROR(impl_->RequireWeights());
  return WriteSafetensors(path, impl_->parameters->Tensors(),
                          {{"plumb", PlumbVersion()}, {"model", impl_->context->model.name}});
}

absl::StatusOr<Model::Outputs> Model::Run(const std::vector<std::vector<int32_t>>& tokens,
                                          bool with_gradients) const {
  PLUMB_RETURN_IF_ERROR(impl_->RequireWeights());
  const ParameterStore& store = *impl_->parameters;
  PLUMB_ASSIGN_OR_RETURN(BatchOutputs batch, OrOutOfMemory("a pass over the batch", [&] {
                           return RunBatch(*impl_->context, store, tokens, with_gradients,
                                           impl_->threads);
                         }));
  Outputs out;
  out.batch = batch.batch;
  out.seq = batch.seq;
  out.vocab = impl_->context->model.dims.vocab_size;
  out.logits = std::move(batch.logits);
  out.loss = batch.loss;
  if (!with_gradients) return out;
  for (const ParameterLayout::Entry& entry : store.layout().entries) {
    std::vector<float> gradient(batch.gradients.begin() + entry.begin,
                                batch.gradients.begin() + entry.end);
    double square = 0;
    for (float g : gradient) square += static_cast<double>(g) * static_cast<double>(g);
    out.grad_l2.emplace_back(entry.name, std::sqrt(square));
    out.gradients[entry.name] = std::move(gradient);
  }
  return out;
}

absl::StatusOr<std::vector<std::string>> Model::ProbePoints() const {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<ProbePoint> points, ListProbePoints(*impl_->context));
  return FullNames(points);
}

absl::StatusOr<std::vector<std::string>> Model::DefaultProbePoints() const {
  PLUMB_ASSIGN_OR_RETURN(std::vector<ProbePoint> points, ListProbePoints(*impl_->context));
  return FullNames(plumb::DefaultProbePoints(std::move(points)));
}

absl::StatusOr<ProbeFigures> Model::Probe(const std::vector<std::vector<int32_t>>& tokens,
                                          const std::vector<std::string>& points) const {
  PLUMB_RETURN_IF_ERROR(impl_->RequireWeights());
  PLUMB_ASSIGN_OR_RETURN(const ProbeResult result, OrOutOfMemory("a pass over the batch", [&] {
                           return ProbeBatch(*impl_->context, *impl_->parameters, tokens, points,
                                             impl_->threads);
                         }));
  ProbeFigures figures;
  ToPublic(result, &figures);
  return figures;
}

absl::Status Model::WriteLogits(const Outputs& outputs, const std::string& path) {
  const TensorToWrite logits{"logits", F32({outputs.batch, outputs.seq, outputs.vocab}),
                             outputs.logits.data()};
  return WriteSafetensors(path, absl::MakeConstSpan(&logits, 1));
}

}  // namespace plumb
