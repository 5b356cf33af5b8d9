// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Lists the parameters that a walk of the model uses.
class Lister : public NullBackend {
 public:
  explicit Lister(const ResolvedModel& model) : model_(model), shared_(model), rules_(model) {}

  TensorHandle Embed() override {
    const ModelDims& d = model_.dims;
    const InitSpec standard = EmbeddingInit();
    const ScalarScope scope = StackScope(model_.layers.front()->placement.get());
    const int64_t width = model_.embedding_width;
    Weight("embedding.token.weight", {d.vocab_size, width}, standard, scope);
    if (width != d.d_model) {
      Weight("embedding.project.weight", {d.d_model, width}, LinearInit(width), scope);
    }
    if (model_.positions.kind == PositionKind::kLearned) {
      const int64_t rows = d.context_length + model_.positions.offset;
      Weight("embedding.position.weight", {rows, d.d_model}, standard, scope);
    }
    if (model_.token_types > 0) {
      Weight("embedding.type.weight", {model_.token_types, d.d_model}, standard, scope);
    }
    return 0;
  }

  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    if (!tables_.insert(site.name).second) return 0;
    const InitSpec standard{InitSpec::Kind::kNormal, 0, 1};
    Weight(absl::StrCat(site.name, ".weight"), {model_.dims.vocab_size, site.width}, standard,
           StackScope(model_.layers.front()->placement.get()));
    return 0;
  }

  TensorHandle Learned(const LearnedSite& site) override {
    const LearnedPlace& place = *site.place;
    if (!learned_.insert(place.name).second) return 0;
    ParameterSpec parameter;
    parameter.name = place.name;
    std::vector<int64_t> dims = place.extents;
    if (dims.empty() || place.width > 1) dims.push_back(place.width);
    parameter.shape = Shape(dims);
    parameter.role = ParameterSpec::Role::kLearned;
    parameter.init = {InitSpec::Kind::kConstant, place.init[0], 0};
    if (std::any_of(place.init.begin(), place.init.end(),
                    [&place](double value) { return value != place.init[0]; })) {
      parameter.init = {InitSpec::Kind::kTable, 0, 0, place.init};
    }
    parameter.weight_decay = place.weight_decay;
    Keep(Append(std::move(parameter)));
    return 0;
  }

  TensorHandle Step() override {
    if (!names_.insert(kStepBuffer).second) return 0;
    BufferSpec buffer;
    buffer.name = kStepBuffer;
    buffer.shape = Shape({1});
    states_.push_back({StateName(kStepBuffer), 1, {std::move(buffer)}, ""});
    return 0;
  }

  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle) override {
    if (site.again) return 0;
    const LinearSpec& linear = *site.spec;
    const std::string weight = absl::StrCat(site.name, ".weight");
    const Shape shape = site.out == 1 ? Shape({site.in}) : Shape({site.out, site.in});
    const Fans fans{site.in, site.out};
    const InitRule* own = linear.init.has_value() ? &*linear.init : nullptr;
    Add(Named(weight, shape), fans, LinearInit(site.in), site.scope, own);
    if (linear.bias) {
      InitSpec init = LinearInit(site.in);
      if (linear.bias_init.has_value()) {
        PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(*linear.bias_init, site.scope));
        init = {InitSpec::Kind::kConstant, value, 0};
      }
      Add(Named(absl::StrCat(site.name, ".bias"), Shape({site.out})), fans, init, site.scope);
    }
    PLUMB_RETURN_IF_ERROR(status_);
    return 0;
  }

  absl::StatusOr<TensorHandle> Norm(const NormSite& site, absl::Span<const TensorHandle>) override {
    PLUMB_ASSIGN_OR_RETURN(const auto instance,
                           site.norm->plugin->Instantiate(site.dim, site.norm->attrs, site.heads));
    if (site.again && instance->cross_row()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "norm \"", site.norm->name,
          "\" keeps statistics over tokens, so one place in a range cannot ",
          "apply it more than once; give each application its own: ", site.slot, "[k](..)"));
    }
    if (site.again) return 0;
    if (instance->wants_step()) Step();
    for (size_t i = 0; i < instance->params().size(); ++i) {
      const NormParam& param = instance->params()[i];
      ParameterSpec parameter;
      parameter.name = absl::StrCat(site.name, ".", param.name);
      parameter.shape = Shape(absl::MakeConstSpan(param.dims));
      parameter.role = ParameterSpec::Role::kNorm;
      parameter.init = ToInit(param, instance, i);
      if (param.weight_decay) parameter.weight_decay = true;
      parameter.lr_scale = param.lr_scale;
      PLUMB_RETURN_IF_ERROR(Append(std::move(parameter)));
    }
    if (instance->cross_row()) PLUMB_RETURN_IF_ERROR(AppendState(site.name, instance));
    return 0;
  }

  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    switch (site.spec->kind) {
      case SublayerSpec::Kind::kAttention:
        return Attention(site, inputs, at_point);
      case SublayerSpec::Kind::kMlp: {
        PLUMB_ASSIGN_OR_RETURN(const int64_t d_ff, EvaluateMlpWidth(site.spec->mlp, site.scope));
        Mlp(site, site.name, site.spec->mlp, model_.dims.d_model, d_ff);
        break;
      }
      case SublayerSpec::Kind::kExperts: {
        PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers,
                               EvaluateExperts(site.spec->experts, site.scope));
        Experts(site, numbers);
        break;
      }
      case SublayerSpec::Kind::kConv:
        Conv(site.name, site.spec->conv, model_.dims.d_model, site.scope);
        break;
      case SublayerSpec::Kind::kLinearAttention: {
        PLUMB_ASSIGN_OR_RETURN(const LinearAttentionNumbers numbers,
                               EvaluateLinearAttention(site.spec->linear_attention, site.scope));
        LinearAttention(site, numbers);
        break;
      }
    }
    PLUMB_RETURN_IF_ERROR(status_);
    return NullBackend::Sublayer(site, inputs, at_point);
  }

  void EndPoint(absl::string_view point, int64_t width) override {
    if (point == "attention.context") context_width_ = width;
  }

  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    const ModelDims& d = model_.dims;
    const ScalarScope scope = StackScope(model_.layers.back()->placement.get());
    const int64_t width = model_.embedding_width;
    if (width != d.d_model) {
      Weight("head.project.weight", {width, d.d_model}, LinearInit(d.d_model), scope);
    }
    if (!model_.tie_embeddings) {
      Weight("head.weight", {d.vocab_size, width}, LinearInit(width), scope);
    }
    if (model_.head_bias) Bias("head.bias", d.vocab_size, width, scope);
    PLUMB_RETURN_IF_ERROR(status_);
    return NullBackend::Head(x, at_point);
  }

  absl::StatusOr<ModelTensors> Finish() && {
    PLUMB_RETURN_IF_ERROR(status_);
    for (ParameterSpec& parameter : parameters_) {
      if (parameter.role == ParameterSpec::Role::kWeight) continue;
      PLUMB_ASSIGN_OR_RETURN(parameter.init, rules_.ApplyToOther(parameter.name, parameter.init,
                                                                 GetScope(parameter.name)));
    }
    PLUMB_RETURN_IF_ERROR(rules_.CheckAllMatched());
    PLUMB_RETURN_IF_ERROR(CheckSize());
    return ModelTensors{std::move(parameters_), std::move(states_)};
  }

 private:
  absl::StatusOr<TensorHandle> Attention(const SublayerSite& site,
                                         absl::Span<const TensorHandle> inputs, AtPoint at_point) {
    const ModelDims& d = *site.scope.dims;
    const AttentionSpec& attention = site.spec->attention;
    const int64_t q_width = d.n_head * d.head_dim;
    const int64_t kv_width = d.n_kv_head * d.head_dim;
    if (site.projects("attention.q")) Linear(site, "q", q_width, d.d_model, attention.qkv_bias);
    if (site.projects("attention.k")) Linear(site, "k", kv_width, d.d_model, attention.qkv_bias);
    if (site.projects("attention.v") && !attention.keys_as_values) {
      Linear(site, "v", kv_width, d.d_model, attention.qkv_bias);
    }
    // The statements decide the width of the context. Their parameters follow those of attention.
    const size_t inside = parameters_.size();
    PLUMB_ASSIGN_OR_RETURN(const TensorHandle out, NullBackend::Sublayer(site, inputs, at_point));
    const size_t after = parameters_.size();
    Linear(site, "o", d.d_model, context_width_, attention.out_bias);
    if (site.projects("attention.decay") && attention.decay) {
      Linear(site, "decay", d.n_head, d.d_model, false);
    }
    if (attention.sinks) {
      const InitSpec zero{InitSpec::Kind::kConstant, 0, 0};
      Add(Named(absl::StrCat(site.name, ".sink"), Shape({d.n_head})), {d.n_head, d.n_head}, zero,
          site.scope);
    }
    const auto begin = parameters_.begin() + static_cast<std::ptrdiff_t>(inside);
    std::rotate(begin, parameters_.begin() + static_cast<std::ptrdiff_t>(after), parameters_.end());
    for (size_t i = inside; i < parameters_.size(); ++i) at_[parameters_[i].name] = i;
    PLUMB_RETURN_IF_ERROR(status_);
    return out;
  }

  // Number of experts, and number that a token uses; 0: no mixture.
  struct Mixture {
    int64_t experts, top_k;
  };

  // Adds the projections of an MLP, or of all experts, under `name`. `width` is that of the input.
  void Mlp(const SublayerSite& site, const std::string& name, const MlpSpec& mlp, int64_t width,
           int64_t d_ff, Mixture mixture = {0, 0}) {
    const auto add = [&](const char* which, int64_t out, int64_t in) {
      const std::string projection = absl::StrCat(name, ".", which);
      Projection(projection, {out, in, mixture}, mlp.bias, site.scope);
    };
    if (mlp.gated) add("gate", d_ff, width);
    add("up", d_ff, width);
    add("down", width, d_ff);
  }

  void Experts(const SublayerSite& site, const ExpertsNumbers& numbers) {
    const ExpertsSpec& experts = site.spec->experts;
    const int64_t d_model = model_.dims.d_model;
    ParameterSpec router;
    router.name = absl::StrCat(site.name, ".router.weight");
    router.shape = Shape({numbers.n_expert, d_model});
    router.is_router = true;
    Add(std::move(router), {d_model, numbers.n_expert}, LinearInit(d_model), site.scope);
    if (experts.router_bias) {
      Bias(absl::StrCat(site.name, ".router.bias"), numbers.n_expert, d_model, site.scope);
    }
    if (experts.correction) {
      ParameterSpec correction =
          Named(absl::StrCat(site.name, ".router.correction"), Shape({numbers.n_expert}));
      correction.role = ParameterSpec::Role::kLearned;
      correction.is_correction = true;
      const std::string name = shared_.GetName(correction.name, /*is_weight=*/false);
      Keep(Append(std::move(correction)));
      states_.push_back(
          {StateName(absl::StrCat(site.name, ".router")), numbers.n_expert, {}, name});
    }
    const int64_t width = numbers.latent > 0 ? numbers.latent : d_model;
    if (numbers.latent > 0) {
      Linear(site, "latent.down", width, d_model, false);
      Linear(site, "latent.up", d_model, width, false);
    }
    Mlp(site, absl::StrCat(site.name, ".experts"), experts.mlp, width, numbers.d_ff,
        {numbers.n_expert, numbers.top_k});
    if (numbers.shared_d_ff == 0) return;
    Mlp(site, absl::StrCat(site.name, ".shared"), experts.mlp, d_model, numbers.shared_d_ff);
    if (experts.shared_gate) Linear(site, "shared_gate", 1, d_model, false);
  }

  // Adds a convolution with the initial values of torch.nn.Conv1d: uniform in +-1/sqrt(fan_in),
  // with the taps of one channel as fan_in.
  void Conv(const std::string& name, const ConvSpec& spec, int64_t channels,
            const ScalarScope& scope) {
    const Fans fans = {spec.width, channels * spec.width};
    ParameterSpec weight = Named(absl::StrCat(name, ".weight"), Shape({channels, spec.width}));
    weight.elementwise = true;
    Add(std::move(weight), fans, LinearInit(spec.width), scope);
    if (spec.bias) Bias(absl::StrCat(name, ".bias"), channels, spec.width, scope);
  }

  void LinearAttention(const SublayerSite& site, const LinearAttentionNumbers& numbers) {
    using Decay = LinearAttentionSpec::Decay;
    const LinearAttentionSpec& spec = site.spec->linear_attention;
    const int64_t d_model = model_.dims.d_model, heads = numbers.n_head;
    const auto add = [&](const char* which, int64_t width) {
      Linear(site, which, width, d_model, false);
      if (!spec.conv.has_value()) return;
      Conv(absl::StrCat(site.name, ".", which, "_conv"), *spec.conv, width, site.scope);
    };
    add("q", numbers.keys());
    add("k", numbers.keys());
    add("v", numbers.values());
    if (spec.decay == Decay::kPerHead) Linear(site, "decay", heads, d_model, false);
    if (spec.decay == Decay::kPerKey) {
      Linear(site, "decay", heads * numbers.key_dim, d_model, false);
    }
    if (spec.delta) Linear(site, "beta", heads, d_model, false);
    Linear(site, "o", d_model, numbers.values(), false);
  }

  // Fails if later code could not count elements and bytes in 64 bits.
  absl::Status CheckSize() const {
    double total = 0;
    for (const ParameterSpec& parameter : parameters_) {
      double elements = 1;
      for (int64_t dim : parameter.shape.dims()) elements *= static_cast<double>(dim);
      total += elements;
    }
    for (const NormStateSpec& state : states_) total += static_cast<double>(state.elements);
    if (total <= 1e15) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the model would have ", total, " parameters; at most 1e+15 can be counted"));
  }

  ScalarScope StackScope(const PlacementSpec* placement) const {
    ScalarScope scope;
    scope.dims = &model_.dims;
    scope.placement = placement;
    return scope;
  }

  // Returns the scope of a tensor that is no weight: that of its layer, or of the begin or end of
  // the stack.
  ScalarScope GetScope(const std::string& name) const {
    const int64_t layer = GetLayer(name);
    const auto& layers = model_.layers;
    ScalarScope scope =
        StackScope(layer > 0 ? layers[static_cast<size_t>(layer - 1)]->placement.get()
                   : absl::StartsWith(name, "begin.") ? layers.front()->placement.get()
                                                      : layers.back()->placement.get());
    scope.layer = layer;
    return scope;
  }

  // Returns the distribution of tensor `i` of the norm, counted as in NormInstance::Fill.
  static InitSpec ToInit(const NormParam& param,
                         const std::shared_ptr<const NormInstance>& instance, size_t i) {
    switch (param.init) {
      case NormParam::Init::kZeros:
        return {InitSpec::Kind::kConstant, 0, 0};
      case NormParam::Init::kOnes:
        return {InitSpec::Kind::kConstant, 1, 0};
      case NormParam::Init::kConstant:
        return {InitSpec::Kind::kConstant, param.init_a, 0};
      case NormParam::Init::kNormal:
        return {InitSpec::Kind::kNormal, param.init_a, param.init_b};
      case NormParam::Init::kFill:
        return {InitSpec::Kind::kFill, 1, 0, {}, 0, instance, i};
      case NormParam::Init::kUniform:
        break;
    }
    return {InitSpec::Kind::kUniform, param.init_a, param.init_b};
  }

  // Returns the distribution of the embedding tables: that of torch.nn.Embedding, or a smaller one
  // if the table is tied, since then the head reads it too. Each logit is the product of a row and
  // the final state. As for an untied head, a standard deviation of 1 / sqrt(3 width) keeps such
  // products small. The final state contains the row of the input token, which norms keep at mean
  // square 1, so that this token's logit is up to width * std; its exponential should not exceed
  // sqrt(vocab_size). Tables that are added to the tied one keep their size relative to it.
  InitSpec EmbeddingInit() const {
    if (!model_.tie_embeddings) return {InitSpec::Kind::kNormal, 0, 1};
    const double width = static_cast<double>(model_.embedding_width);
    const double vocab = static_cast<double>(std::max<int64_t>(model_.dims.vocab_size, 2));
    const double of_head = 1 / std::sqrt(3 * width), of_own_logit = std::log(vocab) / (2 * width);
    return {InitSpec::Kind::kNormal, 0, Normalizes() ? std::min(of_head, of_own_logit) : of_head};
  }

  // Returns true if some norm of the model produces rows of a fixed size for any input.
  bool Normalizes() const {
    const auto normalizes = [](const NormBinding& norm) {
      return norm.plugin->scale_invariant() || norm.plugin->cross_row();
    };
    for (const auto& block : model_.layers) {
      if (block->norm.has_value() && normalizes(*block->norm)) return true;
      for (const auto& [slot, norm] : block->slots) {
        if (normalizes(norm)) return true;
      }
    }
    return false;
  }

  // Returns the distribution of torch.nn.Linear: kaiming_uniform with a = sqrt(5), uniform in
  // +-1/sqrt(fan_in).
  static InitSpec LinearInit(int64_t fan_in) {
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    return {InitSpec::Kind::kUniform, -bound, bound};
  }

  // Fails if the name is taken. A slot may have the name of a projection of its sublayer or of the
  // second application of another slot ("norm_2"), and would collide with its parameters.
  absl::Status TakeName(const std::string& name) {
    if (names_.insert(name).second) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("two parameters would have the name ", name,
                                                   "; rename the norm slot or the projection"));
  }

  // Appends a parameter under the name that sharing gives it, unless an earlier layer has already
  // appended it.
  absl::Status Append(ParameterSpec parameter) {
    const bool is_weight = parameter.role == ParameterSpec::Role::kWeight;
    const std::string own =
        std::exchange(parameter.name, shared_.GetName(parameter.name, is_weight));
    if (const auto there = at_.find(parameter.name); parameter.name != own && there != at_.end()) {
      const Shape& shape = parameters_[there->second].shape;
      if (shape == parameter.shape) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(own, " is ", parameter.shape.ToString(), " and cannot share ",
                       parameter.name, ", which is ", shape.ToString(),
                       "; blocks that share must have equal sublayers and norms"));
    }
    PLUMB_RETURN_IF_ERROR(TakeName(parameter.name));
    at_[parameter.name] = parameters_.size();
    parameters_.push_back(std::move(parameter));
    return absl::OkStatus();
  }

  // Keeps the first error of functions that cannot return one.
  void Keep(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  absl::Status AppendState(const std::string& site,
                           const std::shared_ptr<const NormInstance>& instance) {
    NormStateSpec state;
    state.name = StateName(site);
    state.elements = instance->state_elements();
    PLUMB_RETURN_IF_ERROR(TakeName(state.name));  // shares a namespace with parameters
    for (size_t i = 0; i < instance->buffers().size(); ++i) {
      const NormParam& def = instance->buffers()[i];
      BufferSpec buffer;
      buffer.name = absl::StrCat(site, ".", def.name);
      buffer.shape = Shape(absl::MakeConstSpan(def.dims));
      buffer.init = ToInit(def, instance, instance->params().size() + i);
      buffer.offset = instance->buffer_offset(i);
      PLUMB_RETURN_IF_ERROR(TakeName(buffer.name));
      state.buffers.push_back(std::move(buffer));
    }
    states_.push_back(std::move(state));
    return absl::OkStatus();
  }

  static ParameterSpec Named(const std::string& name, Shape shape) {
    ParameterSpec parameter;
    parameter.name = name;
    parameter.shape = std::move(shape);
    return parameter;
  }

  // Appends a weight or a bias. Shared ones are drawn as in the first layer that has them.
  void Add(ParameterSpec parameter, Fans fans, const InitSpec& fallback, const ScalarScope& scope,
           const InitRule* own = nullptr) {
    parameter.fans = fans;
    const std::string shared = shared_.GetName(parameter.name, /*is_weight=*/true);
    if (shared == parameter.name || at_.count(shared) == 0) {
      absl::StatusOr<InitSpec> init = rules_.Apply(shared, fans, fallback, scope, own);
      if (!init.ok()) return Keep(init.status());
      parameter.init = *init;
    }
    const absl::Status appended = Append(std::move(parameter));
    if (!appended.ok()) Keep(ErrorAt(scope.placement->place, appended.message()));
  }

  void Weight(const std::string& name, Shape shape, const InitSpec& fallback,
              const ScalarScope& scope) {
    const Fans fans{shape[1], shape[0]};
    Add(Named(name, std::move(shape)), fans, fallback, scope);
  }

  void Bias(const std::string& name, int64_t size, int64_t fan_in, const ScalarScope& scope) {
    Add(Named(name, Shape({size})), {fan_in, size}, LinearInit(fan_in), scope);
  }

  // Size of a projection, or of one projection per expert.
  struct ProjectionSize {
    int64_t out, in;
    Mixture mixture;
  };
  void Projection(const std::string& name, ProjectionSize size, bool bias,
                  const ScalarScope& scope) {
    const Fans fans = {size.in, size.out};
    const auto add = [&](const char* which, std::vector<int64_t> dims) {
      ParameterSpec parameter;
      parameter.name = absl::StrCat(name, which);
      parameter.top_k = size.mixture.top_k;
      if (parameter.top_k > 0) dims.insert(dims.begin(), size.mixture.experts);
      parameter.shape = Shape(dims);
      Add(std::move(parameter), fans, LinearInit(size.in), scope);
    };
    add(".weight", {size.out, size.in});
    if (bias) add(".bias", {size.out});
  }

  void Linear(const SublayerSite& site, const char* which, int64_t out, int64_t in, bool bias) {
    Projection(absl::StrCat(site.name, ".", which), {out, in, {0, 0}}, bias, site.scope);
  }

  const ResolvedModel& model_;
  const SharedLayers shared_;
  InitRules rules_;
  std::vector<ParameterSpec> parameters_;
  absl::flat_hash_map<std::string, size_t> at_;  // index in parameters_
  std::vector<NormStateSpec> states_;
  std::set<std::string> names_;    // names of both, and of the buffers
  std::set<std::string> learned_;  // already listed
  std::set<std::string> tables_;   // already listed
  int64_t context_width_ = 0;      // width of the last context of attention
  absl::Status status_;
};

}  // namespace

int64_t GetLayer(const std::string& name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('.', 2));
  int64_t layer = 0;
  if (parts.size() < 3 || parts[0] != "layers" || !absl::SimpleAtoi(parts[1], &layer)) return 0;
  return layer + 1;
}

DType StoredDType(const ParameterSpec& parameter, WeightFormat weights) {
  const bool is_weight = parameter.role == ParameterSpec::Role::kWeight && parameter.is_matrix() &&
                         !parameter.elementwise;
  if (!is_weight || weights == WeightFormat::kF32) return DType::kF32;
  if (weights == WeightFormat::kBf16) return DType::kBF16;
  return parameter.is_router ? DType::kF32 : DType::kI8;
}

std::string ScalesName(const std::string& matrix) { return absl::StrCat(matrix, ".scales"); }

std::string SharedLayers::GetName(const std::string& name, bool is_weight) const {
  const int64_t layer = GetLayer(name);
  if (layer == 0) return name;
  const size_t index = static_cast<size_t>(layer - 1);
  if (!is_weight && model_.layers[index]->own_norms) return name;
  const size_t rest = name.find('.', name.find('.') + 1);
  return absl::StrCat("layers.", model_.first_layers[index], name.substr(rest));
}

std::string StateName(const std::string& site) { return absl::StrCat(site, ".state"); }

absl::StatusOr<ModelTensors> ListTensors(const ResolvedModel& model) {
  Lister lister(model);
  PLUMB_RETURN_IF_ERROR(RunStack(model, &lister));
  return std::move(lister).Finish();
}

}  // namespace plumb
