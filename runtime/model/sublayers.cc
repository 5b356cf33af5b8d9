// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/sublayers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Sets the attributes of op rope for the scaling of a layer. A linear scaling by 1 sets none.
void SetScaling(const RopeNumbers& numbers, Attrs* attrs) {
  if (numbers.scaling == nullptr) return;
  const RopeScaling& scaling = *numbers.scaling;
  if (scaling.kind == RopeScaling::Kind::kLinear) {
    const std::vector<double>& factors = numbers.linear_factors;
    const bool equal = std::equal(factors.begin() + 1, factors.end(), factors.begin());
    if (equal && factors[0] == 1) return;
    attrs->Set("scaling", std::string(equal ? "linear" : "longrope"));
    if (equal) attrs->Set("factor", factors[0]);
    if (!equal) attrs->Set("factors", factors);
    return;
  }
  if (scaling.kind == RopeScaling::Kind::kLongRope) {
    attrs->Set("scaling", std::string("longrope"));
    attrs->Set("factors", scaling.factors);
    attrs->Set("magnitude", scaling.attention_factor);
    return;
  }
  attrs->Set("factor", scaling.factor);
  attrs->Set("original_context", scaling.original_context_length);
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    attrs->Set("scaling", std::string("llama3"));
    attrs->Set("low_freq_factor", scaling.low_freq_factor);
    attrs->Set("high_freq_factor", scaling.high_freq_factor);
    return;
  }
  attrs->Set("scaling", std::string("yarn"));
  attrs->Set("beta_fast", scaling.beta_fast);
  attrs->Set("beta_slow", scaling.beta_slow);
  attrs->Set("magnitude", scaling.attention_factor);
  if (scaling.fractional) attrs->Set("fractional", true);
}

// Rotary embedding of queries and keys in one layer.
class Rotation {
 public:
  static absl::StatusOr<Rotation> At(const SublayerContext& context, const SublayerSite& site) {
    PLUMB_ASSIGN_OR_RETURN(std::optional<Attrs> attrs, RopeAttrs(context.model->positions, site));
    return Rotation(context, std::move(attrs));
  }

  ValueId Of(ValueId x, const std::string& name) const {
    if (!attrs_.has_value()) return x;
    return context_.b->Apply("rope", {x, context_.positions}, *attrs_, name);
  }

 private:
  Rotation(const SublayerContext& context, std::optional<Attrs> attrs)
      : context_(context), attrs_(std::move(attrs)) {}

  const SublayerContext& context_;
  std::optional<Attrs> attrs_;  // nullopt: no rotation
};

// Returns the type of a cache with one row of `channels` per token and head.
TensorType CacheType(const SublayerContext& context, int64_t heads, int64_t tokens,
                     int64_t channels) {
  return {context.weights->format() == WeightFormat::kBf16 ? DType::kBF16 : DType::kF32,
          Shape({context.batch, heads, tokens, channels})};
}

// Emits linear attention for q, k, v and, if they are given, decay and beta.
ValueId EmitRecurrence(const SublayerContext& context, const std::string& name,
                       std::vector<ValueId> inputs, const LinearAttentionNumbers& numbers,
                       ValueId decay = kNoValue, ValueId beta = kNoValue) {
  GraphBuilder& b = *context.b;
  Attrs attrs = {{"n_head", numbers.n_head}, {"n_key_head", numbers.n_key_head}};
  if (context.is_cached) {
    const Shape state = {context.batch, numbers.n_head, numbers.state()};
    inputs.push_back(b.State(absl::StrCat(name, ".recurrent_state"), {DType::kF32, state}));
    inputs.push_back(context.positions);
  }
  if (context.is_train) attrs.Set("train", true);
  if (decay != kNoValue || beta != kNoValue) inputs.push_back(decay);
  if (beta != kNoValue) inputs.push_back(beta);
  return b.Apply(context.is_cached ? "linear_attention_cached" : "linear_attention",
                 std::move(inputs), std::move(attrs), absl::StrCat(name, ".context"));
}

// Returns biases of keys [B, T, n_head] that add decay_{j+1} + .. + decay_i to the score of query i
// and key j: minus the sums of the decays up to each key, as linear attention with keys of 1 and
// queries of -1 computes them. Sums and state are f32.
ValueId EmitKeyBias(const SublayerContext& context, const std::string& name, ValueId decay,
                    int64_t heads) {
  GraphBuilder& b = *context.b;
  if (!b.ok()) return kNoValue;
  if (b.type(decay).dtype != DType::kF32) decay = b.Apply("convert", {decay});
  const auto all = [&](double value) {
    const std::vector<double> dims = {static_cast<double>(heads)};
    const ValueId row = b.Apply("fill", {}, {{"dims", dims}, {"value", value}});
    return b.Apply("expand", {row, decay}, {{"width", heads}});
  };
  return EmitRecurrence(context, name, {all(-1), all(1), decay}, {heads, heads, 1, 1});
}

absl::StatusOr<ValueId> EmitAttention(const SublayerContext& context, const SublayerSite& site,
                                      absl::Span<const ValueId> inputs_of_qkv, AtPoint at_point) {
  const AttentionSpec& spec = site.spec->attention;
  const ModelDims& d = *site.scope.dims;
  const GraphWeights& weights = *context.weights;
  GraphBuilder& b = *context.b;
  const std::string& name = site.name;
  const ValueId of_q = inputs_of_qkv.front(), of_v = inputs_of_qkv.back();
  const ValueId of_k = inputs_of_qkv.size() == 3 ? inputs_of_qkv[1] : of_q;
  // Returns the projection after the point's statements, which may replace it.
  const auto project = [&](const char* which, ValueId x) {
    const std::string point = absl::StrCat("attention.", which);
    return at_point(point, site.projects(point)
                               ? weights.Linear(absl::StrCat(name, ".", which), x, spec.qkv_bias)
                               : kNoValue);
  };
  PLUMB_ASSIGN_OR_RETURN(ValueId q, project("q", of_q));
  PLUMB_ASSIGN_OR_RETURN(ValueId k, project("k", of_k));
  ValueId v = kNoValue;
  if (!spec.keys_as_values) {
    PLUMB_ASSIGN_OR_RETURN(v, project("v", of_v));
  }
  PLUMB_ASSIGN_OR_RETURN(const Rotation rotation, Rotation::At(context, site));
  q = rotation.Of(q, absl::StrCat(name, ".q.rope"));
  PLUMB_ASSIGN_OR_RETURN(q, at_point("attention.q_rot", q));
  k = rotation.Of(k, absl::StrCat(name, ".k.rope"));
  PLUMB_ASSIGN_OR_RETURN(k, at_point("attention.k_rot", k));
  if (spec.keys_as_values) v = k;
  ValueId bias = kNoValue;
  if (spec.decay) {
    const std::string point = "attention.decay", decay_name = absl::StrCat(name, ".decay");
    PLUMB_ASSIGN_OR_RETURN(
        const ValueId decay,
        at_point(point, site.projects(point) ? weights.Linear(decay_name, of_k, false) : kNoValue));
    bias = EmitKeyBias(context, decay_name, decay, d.n_head);
  }

  PLUMB_ASSIGN_OR_RETURN(const AttentionNumbers numbers, EvaluateAttention(spec, site.scope));
  Attrs attrs = {{"n_head", d.n_head}, {"n_kv_head", d.n_kv_head}, {"scale", numbers.scale}};
  if (numbers.score_cap > 0) attrs.Set("cap", numbers.score_cap);
  if (numbers.window > 0) attrs.Set("window", numbers.window);
  PLUMB_ASSIGN_OR_RETURN(const double alibi, EvaluateAlibi(context.model->positions, site.scope));
  if (alibi > 0) attrs.Set("alibi", alibi);
  std::vector<ValueId> inputs = {q, k, v};
  if (context.is_cached) {
    const TensorType cache = CacheType(context, d.n_kv_head, numbers.CachedTokens(d), d.head_dim);
    if (spec.keys_as_values) inputs.pop_back();
    inputs.push_back(b.State(absl::StrCat(name, ".k_cache"), cache));
    if (!spec.keys_as_values) inputs.push_back(b.State(absl::StrCat(name, ".v_cache"), cache));
    inputs.push_back(context.positions);
  }
  if (spec.sinks) inputs.push_back(weights.Param(absl::StrCat(name, ".sink")));
  if (context.lengths != kNoValue) {
    if (!spec.sinks) inputs.push_back(kNoValue);
    inputs.push_back(context.lengths);
  }
  if (bias != kNoValue) {
    inputs.resize(context.is_cached ? 7 : 5, kNoValue);  // there are no sinks and no lengths
    inputs.push_back(bias);
    if (context.is_cached) {
      const Shape cache = {context.batch, 1, d.context_length, d.n_head};
      inputs.push_back(b.State(absl::StrCat(name, ".decay_cache"), {DType::kF32, cache}));
    }
  }
  const char* op = !context.is_cached    ? "attention"
                   : spec.decay          ? "attention_cached_bias"
                   : spec.keys_as_values ? "attention_cached_keys"
                                         : "attention_cached";
  ValueId attended =
      b.Apply(op, std::move(inputs), std::move(attrs), absl::StrCat(name, ".context"));
  PLUMB_ASSIGN_OR_RETURN(attended, at_point("attention.context", attended));
  return at_point("attention.o", weights.Linear(absl::StrCat(name, ".o"), attended, spec.out_bias));
}

// Emits an MLP whose values are named "<name>.hidden" and so on. `project` emits a projection, "up"
// for example; `points` is the first part of its points.
absl::StatusOr<ValueId> EmitMlp(const SublayerContext& context, const std::string& name,
                                const MlpSpec& spec, const char* points, ValueId x,
                                absl::FunctionRef<ValueId(const char*, ValueId)> project,
                                AtPoint at_point) {
  GraphBuilder& b = *context.b;
  const auto run_statements = [&](const char* which, ValueId tensor) {
    return at_point(absl::StrCat(points, ".", which), tensor);
  };
  std::vector<ValueId> factors;  // gate, if any, and up
  if (spec.gated) {
    PLUMB_ASSIGN_OR_RETURN(const ValueId gate, run_statements("gate", project("gate", x)));
    factors.push_back(gate);
  }
  PLUMB_ASSIGN_OR_RETURN(const ValueId up, run_statements("up", project("up", x)));
  factors.push_back(up);
  const std::string hidden_name = absl::StrCat(name, ".hidden");
  ValueId hidden = up;
  if (!spec.activation.empty()) {
    hidden =
        b.Apply(spec.gated ? "gated" : "act", factors, {{"kind", spec.activation}}, hidden_name);
  } else if (spec.gated) {
    hidden = b.Apply("mul", factors, {}, hidden_name);
  }
  PLUMB_ASSIGN_OR_RETURN(hidden, run_statements("hidden", hidden));
  return run_statements("down", project("down", hidden));
}

// Emits an MLP that all tokens use, with projections "<name>.up" and so on.
absl::StatusOr<ValueId> EmitTokenMlp(const SublayerContext& context, const std::string& name,
                                     const MlpSpec& spec, const char* points, ValueId x,
                                     AtPoint at_point) {
  const auto project = [&](const char* which, ValueId in) {
    return context.weights->Linear(absl::StrCat(name, ".", which), in, spec.bias);
  };
  return EmitMlp(context, name, spec, points, x, project, at_point);
}

// Emits the experts' MLPs for rows that are grouped by expert.
absl::StatusOr<ValueId> EmitExpertRows(const SublayerContext& context, const SublayerSite& site,
                                       ValueId rows, ValueId starts, AtPoint at_point) {
  const MlpSpec& spec = site.spec->experts.mlp;
  const std::string name = absl::StrCat(site.name, ".experts");
  const auto project = [&](const char* which, ValueId in) {
    return context.weights->ExpertLinear(absl::StrCat(name, ".", which), in, starts, spec.bias);
  };
  return EmitMlp(context, name, spec, "experts", rows, project, at_point);
}

// Emits the expert that all tokens use.
absl::StatusOr<ValueId> EmitSharedExpert(const SublayerContext& context, const SublayerSite& site,
                                         ValueId x, AtPoint at_point) {
  const ExpertsSpec& spec = site.spec->experts;
  GraphBuilder& b = *context.b;
  const std::string name = absl::StrCat(site.name, ".shared");
  PLUMB_ASSIGN_OR_RETURN(const ValueId out,
                         EmitTokenMlp(context, name, spec.mlp, "shared", x, at_point));
  if (!spec.shared_gate) return out;
  const ValueId logit = context.weights->Linear(absl::StrCat(site.name, ".shared_gate"), x, false);
  const ValueId gate = b.Apply("act", {logit}, {{"kind", std::string("sigmoid")}});
  return b.Apply("mul", {out, gate}, {}, absl::StrCat(name, ".gated"));
}

absl::StatusOr<ValueId> EmitExperts(const SublayerContext& context, const SublayerSite& site,
                                    ValueId x, AtPoint at_point) {
  const ExpertsSpec& spec = site.spec->experts;
  GraphBuilder& b = *context.b;
  const std::string& name = site.name;
  PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers, EvaluateExperts(spec, site.scope));
  const ValueId logits =
      context.weights->Linear(absl::StrCat(name, ".router"), x, spec.router_bias);
  Attrs attrs = {{"top_k", numbers.top_k}, {"router", spec.router}, {"scale", numbers.scale}};
  if (spec.renormalize) attrs.Set("renormalize", true);
  if (numbers.n_group > numbers.top_group) {
    attrs.Set("n_group", numbers.n_group);
    attrs.Set("top_group", numbers.top_group);
  }
  std::vector<ValueId> scores = {logits};
  if (spec.correction) {
    scores.push_back(context.weights->Param(absl::StrCat(name, ".router.correction")));
  }
  const std::vector<ValueId> route =
      b.ApplyAll("route", std::move(scores), std::move(attrs), absl::StrCat(name, ".route"));
  if (!b.ok()) return kNoValue;
  const ValueId weights = route[0], places = route[1], starts = route[2];
  if (numbers.balance_loss > 0 && context.is_train) {
    context.extra_losses->push_back(b.Apply("balance_loss", {logits, starts},
                                            {{"coefficient", numbers.balance_loss}},
                                            absl::StrCat(name, ".balance_loss")));
  }
  if (spec.correction && context.counts_loads) {
    const ValueId loads =
        b.State(StateName(absl::StrCat(name, ".router")), F32({numbers.n_expert}));
    b.Apply("expert_load", {loads, starts}, {}, absl::StrCat(name, ".router.load"));
  }
  const bool latent = numbers.latent > 0;
  const ValueId read =
      latent ? context.weights->Linear(absl::StrCat(name, ".latent.down"), x, false) : x;
  const ValueId rows = b.Apply("to_experts", {read, places}, {}, absl::StrCat(name, ".experts.in"));
  PLUMB_ASSIGN_OR_RETURN(const ValueId y, EmitExpertRows(context, site, rows, starts, at_point));
  ValueId routed =
      b.Apply("from_experts", {y, places, weights}, {}, absl::StrCat(name, ".experts.out"));
  if (latent) {
    routed = context.weights->Linear(absl::StrCat(name, ".latent.up"), routed, false);
  }
  if (numbers.shared_d_ff == 0) return routed;
  PLUMB_ASSIGN_OR_RETURN(const ValueId shared, EmitSharedExpert(context, site, x, at_point));
  return b.Apply("combine", {routed, shared},
                 {{"coefs", std::vector<double>{1, 1}}, {"constant", 0.0}},
                 absl::StrCat(name, ".out"));
}

// Emits a convolution with the given weight and bias (kNoValue: none). Its cache is
// "<name>.x_cache", and `cached` the number of tokens that decoding stores.
ValueId EmitConvolution(const SublayerContext& context, const std::string& name, ValueId x,
                        ValueId weight, ValueId bias, int64_t cached) {
  GraphBuilder& b = *context.b;
  std::vector<ValueId> inputs = {x, weight};
  if (context.is_cached) {
    const TensorType cache = CacheType(context, 1, cached, b.type(x).shape.last());
    inputs.push_back(b.State(absl::StrCat(name, ".x_cache"), cache));
    inputs.push_back(context.positions);
  }
  if (bias != kNoValue) inputs.push_back(bias);
  Attrs attrs;
  if (context.is_cached && cached < context.model->dims.context_length) attrs.Set("ring", true);
  return b.Apply(context.is_cached ? "causal_conv_cached" : "causal_conv", std::move(inputs),
                 std::move(attrs), absl::StrCat(name, ".out"));
}

// Emits a convolution whose parameters are "<name>.weight" and "<name>.bias".
ValueId EmitConv(const SublayerContext& context, const std::string& name, const ConvSpec& spec,
                 ValueId x, int64_t cached) {
  const GraphWeights& weights = *context.weights;
  const ValueId bias = spec.bias ? weights.Param(absl::StrCat(name, ".bias")) : kNoValue;
  return EmitConvolution(context, name, x, weights.Param(absl::StrCat(name, ".weight")), bias,
                         cached);
}

absl::StatusOr<ValueId> EmitLinearAttention(const SublayerContext& context,
                                            const SublayerSite& site, ValueId x, AtPoint at_point) {
  using Decay = LinearAttentionSpec::Decay;
  const LinearAttentionSpec& spec = site.spec->linear_attention;
  const GraphWeights& weights = *context.weights;
  GraphBuilder& b = *context.b;
  const std::string& name = site.name;
  PLUMB_ASSIGN_OR_RETURN(const LinearAttentionNumbers numbers,
                         EvaluateLinearAttention(spec, site.scope));
  ValueId decay = kNoValue, beta = kNoValue;
  if (spec.decay == Decay::kFixed) {
    const std::vector<double> dims = {static_cast<double>(numbers.n_head)};
    const ValueId zeros = b.Apply("fill", {}, {{"dims", dims}, {"value", 0.0}});
    decay = b.Apply("expand", {zeros, x}, {{"width", numbers.n_head}});
  } else if (spec.decay != Decay::kNone) {
    decay = weights.Linear(absl::StrCat(name, ".decay"), x, false);
  }
  if (decay != kNoValue) {
    PLUMB_ASSIGN_OR_RETURN(decay, at_point("linear_attention.decay", decay));
  }
  if (spec.delta) {
    beta = weights.Linear(absl::StrCat(name, ".beta"), x, false);
    PLUMB_ASSIGN_OR_RETURN(beta, at_point("linear_attention.beta", beta));
  }
  const auto project = [&](const char* which) -> absl::StatusOr<ValueId> {
    ValueId y = weights.Linear(absl::StrCat(name, ".", which), x, false);
    if (spec.conv.has_value()) {
      y = EmitConv(context, absl::StrCat(name, ".", which, "_conv"), *spec.conv, y,
                   ConvCacheTokens(*spec.conv, context.model->dims));
    }
    return at_point(absl::StrCat("linear_attention.", which), y);
  };
  PLUMB_ASSIGN_OR_RETURN(const ValueId q, project("q"));
  PLUMB_ASSIGN_OR_RETURN(const ValueId k, project("k"));
  PLUMB_ASSIGN_OR_RETURN(const ValueId v, project("v"));

  ValueId out = EmitRecurrence(context, name, {q, k, v}, numbers, decay, beta);
  PLUMB_ASSIGN_OR_RETURN(out, at_point("linear_attention.context", out));
  return at_point("linear_attention.o", weights.Linear(absl::StrCat(name, ".o"), out, false));
}

}  // namespace

absl::StatusOr<std::optional<Attrs>> RopeAttrs(const PositionSpec& positions,
                                               const SublayerSite& site) {
  if (positions.kind != PositionKind::kRope) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(const RopeNumbers numbers, EvaluateRope(positions, site.scope));
  if (numbers.dims == 0) return std::nullopt;
  const int64_t head_dim = site.scope.dims->head_dim;
  Attrs attrs = {{"head_dim", head_dim}, {"theta", numbers.base}};
  if (numbers.dims != head_dim) attrs.Set("dims", numbers.dims);
  if (positions.rope_interleaved) attrs.Set("interleaved", true);
  SetScaling(numbers, &attrs);
  return std::optional<Attrs>(std::move(attrs));
}

ValueId EmitShift(const SublayerContext& context, const std::string& name, ValueId x, int64_t by) {
  GraphBuilder& b = *context.b;
  if (!b.ok()) return kNoValue;
  const double channels = static_cast<double>(b.type(x).shape.last());
  const auto fill = [&](double columns, double value) {
    return b.Apply("fill", {},
                   {{"dims", std::vector<double>{channels, columns}}, {"value", value}});
  };
  const ValueId weight = b.Apply("concat", {fill(static_cast<double>(by), 0), fill(1, 1)});
  const int64_t cached = std::min(by + 1, context.model->dims.context_length);
  return EmitConvolution(context, name, x, weight, kNoValue, cached);
}

absl::StatusOr<ValueId> EmitSublayer(const SublayerContext& context, const SublayerSite& site,
                                     absl::Span<const ValueId> inputs, AtPoint at_point) {
  switch (site.spec->kind) {
    case SublayerSpec::Kind::kAttention:
      return EmitAttention(context, site, inputs, at_point);
    case SublayerSpec::Kind::kMlp:
      return EmitTokenMlp(context, site.name, site.spec->mlp, "mlp", inputs[0], at_point);
    case SublayerSpec::Kind::kExperts:
      return EmitExperts(context, site, inputs[0], at_point);
    case SublayerSpec::Kind::kLinearAttention:
      return EmitLinearAttention(context, site, inputs[0], at_point);
    case SublayerSpec::Kind::kConv:
      break;
  }
  return EmitConv(context, site.name, site.spec->conv, inputs[0],
                  context.model->dims.context_length);
}

}  // namespace plumb
