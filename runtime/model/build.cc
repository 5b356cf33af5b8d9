#include "runtime/model/build.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/hash_map.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/ops/ops.h"
#include "runtime/spec/interpret.h"

namespace plumb {
namespace {

// Formula values are graph values: handles are ValueIds.
class Emitter : public FormulaBackend {
 public:
  Emitter(const ResolvedModel& model, const std::vector<ParameterSpec>& parameters,
          const OpRegistry& registry, const BuildOptions& options)
      : model_(model), options_(options), b_(&registry) {
    for (const ParameterSpec& parameter : parameters) {
      const DType dtype = StoredDType(parameter, options.weights);
      if (dtype != DType::kI8) {
        parameters_[parameter.name] = b_.Parameter(parameter.name, {dtype, parameter.shape});
        continue;
      }
      const std::string scales = ScalesName(parameter.name);
      parameters_[parameter.name] = b_.Parameter(parameter.name, Int8Elements(parameter.shape));
      parameters_[scales] = b_.Parameter(scales, Int8Scales(parameter.shape));
      int8_shapes_[parameter.name] = parameter.shape;
    }
    const Shape batch_by_seq({options.batch, options.seq});
    tokens_ = b_.Input("tokens", I32(batch_by_seq));
    positions_ = b_.Input("positions", I32(batch_by_seq));
    if (options.program != Program::kCached) targets_ = b_.Input("targets", I32(batch_by_seq));
  }

  absl::StatusOr<Graph> Build() {
    PLUMB_RETURN_IF_ERROR(Run());
    return std::move(b_).Finish();
  }

  absl::Status Run() {
    if (options_.weights == WeightFormat::kInt8 && options_.program == Program::kTrain) {
      return absl::InvalidArgumentError("int8 weights have no gradients: train in f32 or bf16");
    }
    PLUMB_ASSIGN_OR_RETURN(embedding_scale_, EmbeddingScale());
    return RunStack(model_, this);
  }

  // REQUIRES: the stack has been run.
  std::vector<StreamPoint> Streams() const {
    std::vector<StreamPoint> points;
    for (const auto& [name, id] : streams_) {
      if (id != kNoValue) points.push_back({name, b_.graph().value(id).name});
    }
    return points;
  }

  TensorHandle Embed() override {
    const ValueId x = EmbedTokens();
    SetPoint("embedding.residual", x);
    return x;
  }

  void SetStream(const std::string& place, const std::string& stream, TensorHandle value) override {
    // In "block" the place is the layer: what was computed last there is a sublayer.
    const bool in_sublayer = absl::StartsWith(sublayer_, absl::StrCat(place, "."));
    SetPoint(absl::StrCat(in_sublayer ? sublayer_ : place, ".residual",
                          stream == "x" ? "" : absl::StrCat(".", stream)),
             value);
  }

  TensorHandle Combine(absl::Span<const Term> terms, double constant) override {
    std::vector<ValueId> parts;
    std::vector<double> coefs;
    for (const Term& term : terms) {
      parts.push_back(term.tensor);
      coefs.push_back(term.coefficient);
    }
    return b_.Apply("combine", std::move(parts), {{"coefs", coefs}, {"constant", constant}},
                    absl::StrCat(scope_, "sum"));
  }

  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    return b_.Apply("mul", {a, b}, {}, absl::StrCat(scope_, "product"));
  }

  TensorHandle Apply(const std::string& function, TensorHandle a) override {
    return b_.Apply("act", {a}, {{"kind", function}}, absl::StrCat(scope_, function));
  }

  TensorHandle Learned(const LearnedSite& site) override { return Param(site.name); }

  absl::StatusOr<TensorHandle> Norm(const NormSite& site, TensorHandle a) override {
    // A norm that declares itself the identity is not there.
    if (site.norm->plugin->identity()) return a;
    PLUMB_ASSIGN_OR_RETURN(const auto instance,
                           site.norm->plugin->Instantiate(site.dim, site.norm->attrs));
    std::vector<ValueId> inputs = {a};
    for (const NormParam& param : instance->params()) {
      inputs.push_back(Param(absl::StrCat(site.name, ".", param.name)));
    }
    const std::shared_ptr<const AttrObject> attr = std::make_shared<NormAttr>(instance);
    if (instance->cross_row()) return CrossNorm(site, *instance, std::move(inputs), attr);
    return b_.Apply("norm", std::move(inputs),
                    {{"instance", attr}, {"train", options_.program == Program::kTrain}},
                    absl::StrCat(site.name, ".out"));
  }

  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site, TensorHandle input,
                                        AtPoint at_point) override {
    const std::string outer = std::exchange(scope_, absl::StrCat(site.name, "."));
    absl::StatusOr<TensorHandle> out = site.spec->kind == SublayerSpec::Kind::kAttention
                                           ? Attention(site, input, at_point)
                                           : Mlp(site, input, at_point);
    scope_ = outer;
    sublayer_ = site.name;
    return out;
  }

  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    const bool cached = options_.program == Program::kCached;
    if (cached && options_.seq > 1) x = b_.Apply("last_token", {x}, {}, "head.last_token");
    const std::string weight = model_.tie_embeddings ? "embedding.token.weight" : "head.weight";
    ValueId logits = Matmul(x, weight, model_.head_bias ? Param("head.bias") : kNoValue, "logits",
                            /*f32_out=*/cached || options_.output_logits);
    PLUMB_ASSIGN_OR_RETURN(logits, at_point(kHeadPoint, logits));
    if (cached || options_.output_logits) b_.Output("logits", logits);
    if (!cached) OutputLoss(logits);
    return absl::OkStatus();
  }

  void BeginLayer(int64_t layer_index, TensorHandle) override {
    scope_ = absl::StrCat("layers.", layer_index, ".");
  }
  void EndLayer(int64_t, TensorHandle x) override {
    SetPoint(absl::StrCat(scope_, "residual"), x);
    scope_ = "";
    sublayer_ = "";
  }

 private:
  // A place keeps what the last statement there has set.
  void SetPoint(const std::string& name, ValueId value) {
    if (value == kNoValue) return;  // the builder holds an error
    const auto [at, is_new] = stream_at_.emplace(name, streams_.size());
    if (!is_new) streams_[std::exchange(at->second, streams_.size())].second = kNoValue;
    streams_.emplace_back(name, value);
  }

  ValueId EmbedTokens() {
    const ValueId token = Embedding("embedding.token", tokens_);
    std::vector<ValueId> parts = {token};
    std::vector<double> coefs = {embedding_scale_};
    if (model_.positions == PositionKind::kLearned) {
      parts.push_back(Embedding("embedding.position", positions_));
      coefs.push_back(1);
    }
    if (parts.size() == 1 && coefs[0] == 1) return token;
    return b_.Apply("combine", std::move(parts), {{"coefs", coefs}, {"constant", 0.0}},
                    "embedding");
  }

  // The rows `ids` of the table of that name.
  ValueId Embedding(const std::string& name, ValueId ids) {
    const std::string table = absl::StrCat(name, ".weight");
    if (options_.weights == WeightFormat::kInt8) {
      const Shape& shape = int8_shapes_[table];
      return b_.Apply("embedding_int8", {Param(table), Param(ScalesName(table)), ids},
                      {{"rows", shape.rows()}, {"width", shape.last()}}, name);
    }
    return b_.Apply("embedding", {Param(table), ids}, {}, name);
  }

  absl::StatusOr<double> EmbeddingScale() const {
    if (!model_.embedding_scale.has_value()) return 1.0;
    ScalarScope scope;
    scope.dims = &model_.dims;
    scope.placement = model_.layers.front()->placement.get();
    return EvaluateScalar(*model_.embedding_scale, scope);
  }

  ValueId Param(const std::string& name) {
    const auto it = parameters_.find(name);
    if (it != parameters_.end()) return it->second;
    b_.Fail(absl::InternalError(absl::StrCat("no parameter ", name)));
    return kNoValue;
  }

  // `inputs` are x and the parameters. Training takes the statistics of the batch and keeps them in
  // the state; the other programs read the state.
  absl::StatusOr<TensorHandle> CrossNorm(const NormSite& site, const NormInstance& instance,
                                         std::vector<ValueId> inputs,
                                         const std::shared_ptr<const AttrObject>& attr) {
    if (options_.program == Program::kCached && instance.cross_row_eval()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "norm \"", site.norm->name, "\" (", instance.plugin().id(), ") takes statistics over ",
          "tokens in evaluation too, so the model cannot decode token by token; it can be trained ",
          "and evaluated, but not sampled from"));
    }
    const ValueId state = b_.State(StateName(site.name), F32({instance.state_elements()}));
    inputs.insert(inputs.begin() + 1, state);
    const char* op = options_.program == Program::kTrain ? "cross_norm" : "cross_norm_eval";
    return b_.Apply(op, std::move(inputs), {{"instance", attr}}, absl::StrCat(site.name, ".out"));
  }

  // y = x W^T (+ bias), W [out, in].
  ValueId Matmul(ValueId x, const std::string& weight, ValueId bias, absl::string_view name,
                 bool f32_out = false) {
    const bool int8 = options_.weights == WeightFormat::kInt8;
    std::vector<ValueId> inputs = {x, Param(weight)};
    if (int8) inputs.push_back(Param(ScalesName(weight)));
    if (bias != kNoValue) inputs.push_back(bias);
    if (int8) {
      const std::vector<double> rows = {static_cast<double>(int8_shapes_[weight].rows())};
      return b_.Apply("matmul_int8", std::move(inputs), {{"rows", rows}}, name);
    }
    Attrs attrs = {{"transpose_b", true}};
    if (f32_out && options_.weights == WeightFormat::kBf16) attrs.Set("f32_out", true);
    return b_.Apply("matmul", std::move(inputs), std::move(attrs), name);
  }
  ValueId Linear(const std::string& name, ValueId x, bool bias) {
    return Matmul(x, absl::StrCat(name, ".weight"),
                  bias ? Param(absl::StrCat(name, ".bias")) : kNoValue, name);
  }

  ValueId Rope(ValueId x, const std::string& name) {
    if (model_.positions != PositionKind::kRope) return x;
    return b_.Apply("rope", {x, positions_},
                    {{"head_dim", model_.dims.head_dim}, {"theta", model_.rope_theta}}, name);
  }

  absl::StatusOr<TensorHandle> Attention(const SublayerSite& site, ValueId x, AtPoint at_point) {
    const AttentionSpec& spec = site.spec->attention;
    const ModelDims& d = model_.dims;
    const std::string& name = site.name;
    ValueId q = Linear(absl::StrCat(name, ".q"), x, spec.qkv_bias);
    PLUMB_ASSIGN_OR_RETURN(q, at_point("attention.q", q));
    ValueId k = Linear(absl::StrCat(name, ".k"), x, spec.qkv_bias);
    PLUMB_ASSIGN_OR_RETURN(k, at_point("attention.k", k));
    ValueId v = Linear(absl::StrCat(name, ".v"), x, spec.qkv_bias);
    PLUMB_ASSIGN_OR_RETURN(v, at_point("attention.v", v));
    q = Rope(q, absl::StrCat(name, ".q.rope"));
    k = Rope(k, absl::StrCat(name, ".k.rope"));

    double scale = 1 / std::sqrt(static_cast<double>(d.head_dim));
    if (spec.scale.has_value()) {
      PLUMB_ASSIGN_OR_RETURN(scale, EvaluateScalar(*spec.scale, site.scope));
    }
    const Attrs attrs = {{"n_head", d.n_head}, {"n_kv_head", d.n_kv_head}, {"scale", scale}};
    ValueId context;
    if (options_.program == Program::kCached) {
      const TensorType cache = {
          options_.weights == WeightFormat::kBf16 ? DType::kBF16 : DType::kF32,
          Shape({options_.batch, d.n_kv_head, d.context_length, d.head_dim})};
      const ValueId k_cache = b_.State(absl::StrCat(name, ".k_cache"), cache);
      const ValueId v_cache = b_.State(absl::StrCat(name, ".v_cache"), cache);
      context = b_.Apply("attention_cached", {q, k, v, k_cache, v_cache, positions_}, attrs,
                         absl::StrCat(name, ".context"));
    } else {
      context = b_.Apply("attention", {q, k, v}, attrs, absl::StrCat(name, ".context"));
    }
    PLUMB_ASSIGN_OR_RETURN(context, at_point("attention.context", context));
    return Linear(absl::StrCat(name, ".o"), context, spec.out_bias);
  }

  void OutputLoss(ValueId logits) {
    Attrs attrs;
    if (options_.label_smoothing > 0) attrs.Set("label_smoothing", options_.label_smoothing);
    if (options_.z_loss > 0) attrs.Set("z_loss", options_.z_loss);
    const std::vector<ValueId> outputs =
        b_.ApplyAll("cross_entropy", {logits, targets_}, std::move(attrs), "loss");
    b_.Output("loss", outputs[0]);
    if (options_.label_smoothing > 0 || options_.z_loss > 0) b_.Output("objective", outputs[2]);
  }

  absl::StatusOr<TensorHandle> Mlp(const SublayerSite& site, ValueId x, AtPoint at_point) {
    const MlpSpec& spec = site.spec->mlp;
    const std::string& name = site.name;
    const Attrs kind = {{"kind", spec.activation}};
    ValueId hidden;
    if (spec.gated) {
      const ValueId gate = Linear(absl::StrCat(name, ".gate"), x, spec.bias);
      const ValueId up = Linear(absl::StrCat(name, ".up"), x, spec.bias);
      hidden = b_.Apply("gated", {gate, up}, kind, absl::StrCat(name, ".hidden"));
    } else {
      const ValueId up = Linear(absl::StrCat(name, ".up"), x, spec.bias);
      hidden = b_.Apply("act", {up}, kind, absl::StrCat(name, ".hidden"));
    }
    PLUMB_ASSIGN_OR_RETURN(hidden, at_point("mlp.hidden", hidden));
    return Linear(absl::StrCat(name, ".down"), hidden, spec.bias);
  }

  const ResolvedModel& model_;
  const BuildOptions options_;
  GraphBuilder b_;
  HashMap<std::string, ValueId> parameters_;
  HashMap<std::string, Shape> int8_shapes_;  // of matrices, by name
  ValueId tokens_ = kNoValue, positions_ = kNoValue, targets_ = kNoValue;
  double embedding_scale_ = 1;
  std::string scope_;     // of value names: "layers.3."
  std::string sublayer_;  // that was computed last in this layer: "layers.3.attention"
  std::vector<std::pair<std::string, ValueId>> streams_;  // kNoValue: set again later
  HashMap<std::string, size_t> stream_at_;
};

}  // namespace

DType StoredDType(const ParameterSpec& parameter, WeightFormat weights) {
  const bool is_weight = parameter.role == ParameterSpec::Role::kWeight && parameter.is_matrix();
  if (!is_weight || weights == WeightFormat::kF32) return DType::kF32;
  return weights == WeightFormat::kBf16 ? DType::kBF16 : DType::kI8;
}

std::string ScalesName(const std::string& matrix) { return absl::StrCat(matrix, ".scales"); }

absl::StatusOr<Graph> BuildForward(const ResolvedModel& model,
                                   const std::vector<ParameterSpec>& parameters,
                                   const OpRegistry& registry, const BuildOptions& options) {
  return Emitter(model, parameters, registry, options).Build();
}

absl::StatusOr<std::vector<StreamPoint>> ListStreams(const ResolvedModel& model,
                                                     const std::vector<ParameterSpec>& parameters,
                                                     const OpRegistry& registry,
                                                     const BuildOptions& options) {
  Emitter emitter(model, parameters, registry, options);
  PLUMB_RETURN_IF_ERROR(emitter.Run());
  return emitter.Streams();
}

}  // namespace plumb
