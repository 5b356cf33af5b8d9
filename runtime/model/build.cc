// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/build.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/model/graph_weights.h"
#include "runtime/model/sublayers.h"
#include "runtime/ops/host_loss.h"
#include "runtime/ops/ops.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Handles of formula tensors are ValueIds of the graph.
class Emitter : public FormulaBackend {
 public:
  Emitter(const ResolvedModel& model, const std::vector<ParameterSpec>& parameters,
          const OpRegistry& registry, const BuildOptions& options)
      : model_(model),
        options_(options),
        b_(&registry),
        weights_(&b_, parameters, options.weights, SharedLayers(model)) {
    const Shape batch_by_seq({options.batch, options.seq});
    tokens_ = b_.Input("tokens", I32(batch_by_seq));
    positions_ = b_.Input("positions", I32(batch_by_seq));
    if (options.program != Program::kCached) targets_ = b_.Input("targets", I32(batch_by_seq));
    if (model.token_types > 0) types_ = b_.Input(kTypesInput, I32(batch_by_seq));
    if (model.bidirectional) lengths_ = b_.Input(kLengthsInput, I32(Shape({options.batch})));
  }

  absl::StatusOr<Graph> Build() {
    PLUMB_RETURN_IF_ERROR(Run());
    for (const auto& [name, id] : streams_) {
      if (id != kNoValue) b_.SetStream(id);
    }
    return std::move(b_).Finish();
  }

  absl::Status Run() {
    if (options_.weights == WeightFormat::kInt8 && options_.program == Program::kTrain) {
      return absl::InvalidArgumentError("int8 weights have no gradients: train in f32 or bf16");
    }
    if (model_.bidirectional && options_.program == Program::kCached) {
      return absl::FailedPreconditionError(
          "the model is bidirectional: each token sees those after it, so that it cannot be "
          "sampled "
          "from token by token; it can be trained and evaluated");
    }
    PLUMB_ASSIGN_OR_RETURN(embedding_scale_, EvaluateEmbeddingScale(model_));
    return RunStack(model_, this);
  }

  // Requires: Run returned OK.
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
    // In "block" `place` is the layer, and the last value was computed by a sublayer.
    const bool in_sublayer = absl::StartsWith(sublayer_, absl::StrCat(place, "."));
    SetPoint(absl::StrCat(in_sublayer ? sublayer_ : place, ".residual",
                          stream == "x" ? "" : absl::StrCat(".", stream)),
             value);
  }

  TensorHandle Combine(absl::Span<const Term> terms, double constant) override {
    std::vector<ValueId> tensors;
    for (const Term& term : terms) tensors.push_back(term.tensor);
    tensors = ConvertToOneType(std::move(tensors));
    std::vector<Term> alike;
    for (size_t i = 0; i < terms.size(); ++i) alike.push_back({terms[i].coefficient, tensors[i]});
    return EmitSum(&b_, alike, constant, absl::StrCat(scope_, "sum"));
  }

  TensorHandle Multiply(TensorHandle a, TensorHandle b) override {
    return b_.Apply("mul", ConvertToOneType({a, b}), {}, absl::StrCat(scope_, "product"));
  }

  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> given) override {
    if (function.name == "position") {
      return b_.Apply("convert", {Positions()}, {}, absl::StrCat(scope_, "position"));
    }
    const std::vector<ValueId> operands = ConvertToOneType({given.begin(), given.end()});
    if (function.name == "shift") {
      return EmitShift(Context(), absl::StrCat(scope_, "shift.", ++shifts_),
                       InModelType(operands[0]), static_cast<int64_t>(function.numbers[0]));
    }
    if (function.name != "part") return EmitFunction(&b_, function, operands, scope_);
    // All parts of a tensor share one split.
    const int64_t n = static_cast<int64_t>(function.numbers[1]);
    const int64_t width = b_.type(operands[0]).shape.last() / n;
    return Parts(operands[0], {static_cast<size_t>(n), static_cast<double>(width)},
                 /*flat=*/false)[static_cast<size_t>(function.numbers[0])];
  }

  TensorHandle Step() override {
    if (step_ == kNoValue) step_ = b_.State(StateName(kStepBuffer), F32({1}));
    return step_;
  }

  TensorHandle Drop(const DropSite& site, TensorHandle a) override {
    if (options_.program != Program::kTrain) return a;
    if (random_ == kNoValue) random_ = b_.Input(kRandomInput, I32({kRandomWords}));
    const double p = options_.drop ? site.p : 0;
    return b_.Apply("drop", {a, random_}, {{"p", p}, {"path", site.path}, {"name", site.name}},
                    absl::StrCat(site.name, ".out"));
  }

  TensorHandle Learned(const LearnedSite& site) override {
    const LearnedPlace& place = *site.place;
    const ValueId parameter = Param(place.name);
    if (place.extents.empty()) return parameter;
    const std::pair<size_t, double> parts(place.init.size(), static_cast<double>(place.width));
    return Parts(parameter, parts, /*flat=*/true)[static_cast<size_t>(site.index)];
  }

  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle given) override {
    const ValueId a = InModelType(given);
    if (site.out > 1) return weights_.Linear(site.name, a, site.spec->bias);
    // With one output the weight is a vector.
    const ValueId weight = Param(absl::StrCat(site.name, ".weight"));
    const ValueId y = b_.Apply("row_dot", {a, weight}, {{"size", int64_t{1}}}, site.name);
    if (!site.spec->bias) return y;
    const Term terms[] = {{1, y}, {1, Param(absl::StrCat(site.name, ".bias"))}};
    return EmitSum(&b_, terms, 0, site.name);
  }

  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    const auto [at, is_new] = tables_.try_emplace(site.name, kNoValue);
    if (is_new) at->second = weights_.Embedding(site.name, tokens_, head_is_f32_);
    return at->second;
  }

  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    // A norm that declares itself the identity is omitted.
    if (site.norm->plugin->identity()) return inputs[0];
    PLUMB_ASSIGN_OR_RETURN(const auto instance,
                           site.norm->plugin->Instantiate(site.dim, site.norm->attrs, site.heads));
    std::vector<ValueId> operands = {InModelType(inputs[0])};
    for (const NormParam& param : instance->params()) {
      operands.push_back(Param(absl::StrCat(site.name, ".", param.name)));
    }
    if (instance->two_inputs()) operands.push_back(InModelType(inputs[1]));
    if (instance->wants_positions()) operands.push_back(Positions());
    if (instance->wants_step()) operands.push_back(Step());
    const std::shared_ptr<const AttrObject> attr = std::make_shared<NormAttr>(instance);
    if (instance->cross_row()) return CrossNorm(site, *instance, std::move(operands), attr);
    return b_.Apply("norm", std::move(operands),
                    {{"instance", attr}, {"train", options_.program == Program::kTrain}},
                    absl::StrCat(site.name, ".out"));
  }

  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> given,
                                        AtPoint run_statements) override {
    const std::string outer = std::exchange(scope_, absl::StrCat(site.name, "."));
    std::vector<ValueId> inputs;
    for (const TensorHandle input : given) inputs.push_back(InModelType(input));
    const auto at_point = [&](absl::string_view point,
                              TensorHandle tensor) -> absl::StatusOr<TensorHandle> {
      PLUMB_ASSIGN_OR_RETURN(const TensorHandle after, run_statements(point, tensor));
      return InModelType(after);
    };
    absl::StatusOr<TensorHandle> out = EmitSublayer(Context(), site, inputs, at_point);
    scope_ = outer;
    sublayer_ = site.name;
    return out;
  }

  absl::Status Head(TensorHandle x, AtPoint at_point) override {
    const bool cached = options_.program == Program::kCached;
    x = InModelType(x);
    if (cached && options_.seq > 1) {
      x = b_.Apply("last_token", {x}, {}, "head.last_token");
      if (!model_.token_tables.empty())
        tokens_ = b_.Apply("last_token", {tokens_}, {}, "head.token");
    }
    head_is_last_ = cached && options_.seq > 1;
    // Tables that the head reads have the tokens and the type of the logits.
    tables_.clear();
    head_is_f32_ = cached || options_.output_logits;
    if (HasProjections()) x = weights_.Linear("head.project", x, /*bias=*/false);
    const std::string weight = model_.tie_embeddings ? "embedding.token.weight" : "head.weight";
    const ValueId bias = model_.head_bias ? Param("head.bias") : kNoValue;
    ValueId logits = weights_.Matmul(x, weight, bias, "logits", /*f32_out=*/head_is_f32_);
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
  SublayerContext Context() {
    return {&model_,
            &weights_,
            &b_,
            options_.batch,
            options_.program == Program::kTrain,
            options_.program == Program::kCached,
            options_.counts_loads,
            positions_,
            lengths_,
            &extra_losses_};
  }

  // Returns rows of positions, which are f32, in the type of the model's other rows.
  ValueId InModelType(ValueId x) {
    if (options_.weights != WeightFormat::kBf16 || head_is_f32_ || !b_.ok()) return x;
    const TensorType& type = b_.type(x);
    if (type.dtype != DType::kF32 || type.shape.rank() == 1) return x;
    return b_.Apply("convert", {x}, {{"bf16", true}}, absl::StrCat(scope_, "rounded"));
  }

  // Returns the operands with rows of one type.
  std::vector<ValueId> ConvertToOneType(std::vector<ValueId> operands) {
    const bool rounds =
        b_.ok() && std::any_of(operands.begin(), operands.end(),
                               [this](ValueId id) { return b_.type(id).dtype == DType::kBF16; });
    if (!rounds) return operands;
    for (ValueId& id : operands) id = InModelType(id);
    return operands;
  }

  // Returns the positions of the tokens that formulas see at this point.
  ValueId Positions() {
    if (!head_is_last_) return positions_;
    if (head_positions_ == kNoValue) {
      head_positions_ = b_.Apply("last_token", {positions_}, {}, "head.position");
    }
    return head_positions_;
  }

  // Each point keeps the value of the last statement that sets it.
  void SetPoint(const std::string& name, ValueId value) {
    if (value == kNoValue) return;  // the builder holds the error
    const auto [at, is_new] = stream_at_.emplace(name, streams_.size());
    if (!is_new) streams_[std::exchange(at->second, streams_.size())].second = kNoValue;
    streams_.emplace_back(name, value);
  }

  // Returns the parts of a value. `parts`: number of parts, and channels in each.
  const std::vector<ValueId>& Parts(ValueId whole, std::pair<size_t, double> parts, bool flat) {
    std::vector<ValueId>& known = parts_[{whole, parts.first}];
    if (known.empty()) {
      const std::vector<double> widths(parts.first, parts.second);
      const std::string name = b_.ok() ? b_.graph().value(whole).name : "";
      known = b_.ApplyAll("split", {whole}, {{"widths", widths}, {"flat", flat}},
                          absl::StrCat(name, ".part"));
    }
    return known;
  }

  // Returns true if the width of the token embedding differs from that of the stream.
  bool HasProjections() const { return model_.embedding_width != model_.dims.d_model; }

  ValueId EmbedTokens() {
    ValueId token = weights_.Embedding("embedding.token", tokens_);
    // Scaling commutes with the projection.
    if (HasProjections()) token = weights_.Linear("embedding.project", token, /*bias=*/false);
    std::vector<ValueId> parts = {token};
    std::vector<double> coefs = {embedding_scale_};
    if (model_.positions.kind == PositionKind::kLearned) {
      parts.push_back(weights_.Embedding("embedding.position", positions_, /*f32_out=*/false,
                                         model_.positions.offset));
      coefs.push_back(1);
    }
    if (model_.token_types > 0) {
      parts.push_back(weights_.Embedding("embedding.type", types_));
      coefs.push_back(1);
    }
    if (parts.size() == 1 && coefs[0] == 1) return token;
    return b_.Apply("combine", std::move(parts), {{"coefs", coefs}, {"constant", 0.0}},
                    "embedding");
  }

  ValueId Param(const std::string& name) const { return weights_.Param(name); }

  // Emits a norm with statistics over tokens. `inputs` are x and the parameters. Training computes
  // the statistics of the batch and updates the state; other programs read the state.
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

  void OutputLoss(ValueId logits) {
    if (options_.host_loss_passes > 0) return OutputHostLoss(logits);
    Attrs attrs;
    if (options_.label_smoothing > 0) attrs.Set("label_smoothing", options_.label_smoothing);
    if (options_.z_loss > 0) attrs.Set("z_loss", options_.z_loss);
    if (options_.output_losses) attrs.Set("rows", true);
    const std::vector<ValueId> outputs =
        b_.ApplyAll("cross_entropy", {logits, targets_}, std::move(attrs), "loss");
    b_.Output("loss", outputs[0]);
    if (options_.output_losses) b_.Output("losses", outputs.back());
    const bool has_objective = options_.label_smoothing > 0 || options_.z_loss > 0;
    std::vector<ValueId> terms = {outputs[has_objective ? 2 : 0]};
    terms.insert(terms.end(), extra_losses_.begin(), extra_losses_.end());
    if (!has_objective && terms.size() == 1 && !options_.weighs_loss) return;
    if (terms.size() > 1) {
      const std::vector<double> coefs(terms.size(), 1.0);
      terms = {b_.Apply("combine", std::move(terms), {{"coefs", coefs}, {"constant", 0.0}},
                        "objective")};
    }
    if (options_.weighs_loss) {
      const ValueId weight = b_.Input(kLossWeightInput, F32({1}));
      terms = {b_.Apply("mul", {terms[0], weight}, {}, "weighted_objective")};
    }
    b_.Output("objective", terms[0]);
  }

  void OutputHostLoss(ValueId logits) {
    if (b_.ok() && b_.type(logits).dtype == DType::kBF16) {
      logits = b_.Apply("convert", {logits}, {}, "logits.f32");
    }
    const ValueId function = b_.Input(kHostLossInput, I32({kHostLossWords}));
    const ValueId loss = b_.ApplyAll("host_loss", {logits, function}, {}, "loss")[0];
    b_.Output("loss", loss);
    if (extra_losses_.empty()) return;
    const double share = 1 / static_cast<double>(options_.host_loss_passes);
    std::vector<double> coefs(1, 1.0);
    coefs.resize(extra_losses_.size() + 1, share);
    std::vector<ValueId> terms = extra_losses_;
    terms.insert(terms.begin(), loss);
    b_.Output("objective", b_.Apply("combine", std::move(terms),
                                    {{"coefs", coefs}, {"constant", 0.0}}, "objective"));
  }

  const ResolvedModel& model_;
  const BuildOptions options_;
  GraphBuilder b_;
  const GraphWeights weights_;
  ValueId tokens_ = kNoValue, positions_ = kNoValue, targets_ = kNoValue;
  ValueId head_positions_ = kNoValue;              // created if a norm in the head needs it
  ValueId types_ = kNoValue, lengths_ = kNoValue;  // kNoValue if the model has none
  ValueId step_ = kNoValue, random_ = kNoValue;    // created when a formula reads it
  std::map<std::pair<ValueId, size_t>, std::vector<ValueId>> parts_;  // (value, number of parts)
  int64_t shifts_ = 0;  // number of shifts so far, which names their caches
  double embedding_scale_ = 1;
  absl::flat_hash_map<std::string, ValueId> tables_;  // rows already read, keyed by table
  std::vector<ValueId> extra_losses_;                 // added to the cross-entropy
  bool head_is_last_ = false;                         // the head sees only the last token
  bool head_is_f32_ = false;                          // the logits are f32 in any format
  std::string scope_;                                 // prefix of value names: "layers.3."
  std::string sublayer_;  // last one computed in this layer: "layers.3.attention"
  std::vector<std::pair<std::string, ValueId>> streams_;  // kNoValue: set again later
  absl::flat_hash_map<std::string, size_t> stream_at_;
};

}  // namespace

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
