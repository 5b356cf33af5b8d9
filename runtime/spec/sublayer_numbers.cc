// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/sublayer_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

absl::Status ErrorIn(const Expression& field, absl::string_view message) {
  return ErrorInText(field.text, field.root.offset, message);
}

// Returns the field's value, or `fallback` if it is absent. Fails unless the value is above 0.
absl::StatusOr<double> Positive(const std::optional<Expression>& field, const char* name,
                                double fallback, const ScalarScope& scope) {
  if (!field.has_value()) return fallback;
  PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(*field, scope));
  if (value > 0) return value;
  return ErrorIn(*field, absl::StrCat(name, ": ", value, scope.Where(), " must be positive"));
}

// Returns the field's value, or 0 if it is absent. Fails unless the value is finite in f32 and not
// negative.
absl::StatusOr<double> NotNegative(const std::optional<Expression>& field, const char* name,
                                   const char* what, const ScalarScope& scope) {
  if (!field.has_value()) return 0.0;
  PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(*field, scope));
  if (value >= 0 && value <= static_cast<double>(std::numeric_limits<float>::max())) return value;
  return ErrorIn(*field, absl::StrCat(name, ": ", value, scope.Where(), " must be ", what));
}

// Returns the field's value. Fails unless it is an integer in min..max.
absl::StatusOr<int64_t> WholeNumber(const Expression& field, const char* name, int64_t min,
                                    int64_t max, const ScalarScope& scope) {
  PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(field, scope));
  if (value >= static_cast<double>(min) && value <= static_cast<double>(max) &&
      value == std::floor(value)) {
    return static_cast<int64_t>(value);
  }
  return ErrorIn(field, absl::StrCat(name, ": ", value, scope.Where(), " is not a whole number in ",
                                     min, "..", max));
}

// Calls visit(sublayer, scope) for each sublayer of each layer, until the first error.
template <class Visit>
absl::Status ForEachSublayer(const ResolvedModel& model, const Visit& visit) {
  ScalarScope scope;
  for (const auto& block : model.layers) {
    ++scope.layer;
    scope.placement = block->placement.get();
    for (const SublayerSpec& sublayer : block->sublayers) {
      scope.dims = &model.DimsAt(++scope.sublayer);
      PLUMB_RETURN_IF_ERROR(visit(sublayer, scope));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxHeads = 1 << 14;
constexpr int64_t kMaxHeadDim = 1 << 12;  // a state has the square of it

}  // namespace

absl::StatusOr<int64_t> EvaluateHiddenWidth(const Expression& d_ff, const ScalarScope& scope) {
  return WholeNumber(d_ff, "d_ff", 1, kMaxWidth, scope);
}

absl::StatusOr<int64_t> EvaluateMlpWidth(const MlpSpec& spec, const ScalarScope& scope) {
  return spec.d_ff.has_value() ? EvaluateHiddenWidth(*spec.d_ff, scope) : scope.dims->d_ff;
}

absl::StatusOr<ExpertsNumbers> EvaluateExperts(const ExpertsSpec& spec, const ScalarScope& scope) {
  ExpertsNumbers numbers;
  PLUMB_ASSIGN_OR_RETURN(numbers.n_expert,
                         WholeNumber(spec.n_expert, "n_expert", 1, kMaxExperts, scope));
  PLUMB_ASSIGN_OR_RETURN(numbers.top_k,
                         WholeNumber(spec.top_k, "top_k", 1, numbers.n_expert, scope));
  PLUMB_ASSIGN_OR_RETURN(numbers.d_ff, EvaluateMlpWidth(spec.mlp, scope));
  if (spec.shared_d_ff.has_value()) {
    const int64_t min = spec.shared_gate ? 1 : 0;
    PLUMB_ASSIGN_OR_RETURN(numbers.shared_d_ff,
                           WholeNumber(*spec.shared_d_ff, "shared_d_ff", min, kMaxWidth, scope));
  }
  if (spec.latent.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.latent,
                           WholeNumber(*spec.latent, "latent", 1, kMaxWidth, scope));
  }
  PLUMB_ASSIGN_OR_RETURN(numbers.balance_loss,
                         NotNegative(spec.balance_loss, "balance_loss",
                                     "a coefficient above 0, or 0 for no such loss", scope));
  if (spec.scale.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.scale, EvaluateScalar(*spec.scale, scope));
  }
  if (spec.n_group.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.n_group,
                           WholeNumber(*spec.n_group, "n_group", 1, numbers.n_expert, scope));
    if (numbers.n_expert % numbers.n_group != 0) {
      return ErrorIn(*spec.n_group,
                     absl::StrCat("n_group: ", numbers.n_group, scope.Where(),
                                  " does not divide the ", numbers.n_expert, " experts"));
    }
  }
  if (spec.top_group.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.top_group,
                           WholeNumber(*spec.top_group, "top_group", 1, numbers.n_group, scope));
  }
  const int64_t eligible = numbers.top_group * (numbers.n_expert / numbers.n_group);
  if (numbers.top_k > eligible) {
    return ErrorIn(spec.top_k, absl::StrCat("top_k: ", numbers.top_k, scope.Where(), " is more ",
                                            "than the ", eligible, " experts of top_group groups"));
  }
  return numbers;
}

absl::StatusOr<LinearAttentionNumbers> EvaluateLinearAttention(const LinearAttentionSpec& spec,
                                                               const ScalarScope& scope) {
  const auto number = [&scope](const std::optional<Expression>& field, const char* name,
                               int64_t max, int64_t fallback) -> absl::StatusOr<int64_t> {
    if (!field.has_value()) return fallback;
    return WholeNumber(*field, name, 1, max, scope);
  };
  LinearAttentionNumbers numbers;
  PLUMB_ASSIGN_OR_RETURN(numbers.n_head,
                         number(spec.n_head, "n_head", kMaxHeads, scope.dims->n_head));
  PLUMB_ASSIGN_OR_RETURN(numbers.n_key_head,
                         number(spec.n_key_head, "n_key_head", kMaxHeads, numbers.n_head));
  PLUMB_ASSIGN_OR_RETURN(numbers.key_dim,
                         number(spec.key_dim, "key_dim", kMaxHeadDim, scope.dims->head_dim));
  PLUMB_ASSIGN_OR_RETURN(numbers.value_dim,
                         number(spec.value_dim, "value_dim", kMaxHeadDim, scope.dims->head_dim));
  if (numbers.n_head % numbers.n_key_head != 0) {
    return ErrorIn(*spec.n_key_head,
                   absl::StrCat("n_key_head: ", numbers.n_key_head, scope.Where(),
                                " does not divide the ", numbers.n_head, " heads of n_head"));
  }
  return numbers;
}

int64_t ConvCacheTokens(const ConvSpec& spec, const ModelDims& dims) {
  return std::min(spec.width, dims.context_length);
}

absl::StatusOr<AttentionNumbers> EvaluateAttention(const AttentionSpec& spec,
                                                   const ScalarScope& scope) {
  AttentionNumbers numbers;
  numbers.scale = 1 / std::sqrt(static_cast<double>(scope.dims->head_dim));
  if (spec.scale.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.scale, EvaluateScalar(*spec.scale, scope));
  }
  PLUMB_ASSIGN_OR_RETURN(numbers.score_cap, NotNegative(spec.score_cap, "score_cap",
                                                        "a bound above 0, or 0 for none", scope));
  constexpr char kExpected[] = "a whole number of tokens from 1 on, or 0 for all of them";
  PLUMB_ASSIGN_OR_RETURN(const double window, NotNegative(spec.window, "window", kExpected, scope));
  if (window != std::floor(window)) {
    return ErrorIn(*spec.window,
                   absl::StrCat("window: ", window, scope.Where(), " must be ", kExpected));
  }
  const double context = static_cast<double>(scope.dims->context_length);
  numbers.window = window < context ? static_cast<int64_t>(window) : 0;
  return numbers;
}

absl::Status EvaluateHeads(ResolvedModel* model) {
  const auto visit = [&](const SublayerSpec& sublayer, const ScalarScope& scope) -> absl::Status {
    const AttentionSpec& spec = sublayer.attention;
    const std::optional<Expression>& heads = spec.n_kv_head ? spec.n_kv_head : spec.n_head;
    const bool is_own = heads.has_value() || spec.head_dim.has_value();
    if (sublayer.kind != SublayerSpec::Kind::kAttention || !is_own) return absl::OkStatus();
    ModelDims own = *scope.dims;
    for (const auto& [field, name, max, value] :
         {std::tuple(&spec.n_head, "n_head", kMaxHeads, &own.n_head),
          std::tuple(&spec.n_kv_head, "n_kv_head", kMaxHeads, &own.n_kv_head),
          std::tuple(&spec.head_dim, "head_dim", kMaxWidth, &own.head_dim)}) {
      if (!field->has_value()) continue;
      PLUMB_ASSIGN_OR_RETURN(*value, WholeNumber(**field, name, 1, max, scope));
    }
    if (heads.has_value() && own.n_head % own.n_kv_head != 0) {
      return ErrorIn(*heads, absl::StrCat("n_kv_head: ", own.n_kv_head, scope.Where(),
                                          " does not divide n_head ", own.n_head,
                                          spec.n_kv_head.has_value() ? "" : "; set n_kv_head"));
    }
    if (model->positions.kind == PositionKind::kRope && !model->positions.rope_dims.has_value() &&
        spec.head_dim.has_value() && own.head_dim % 2 != 0) {
      return ErrorIn(*spec.head_dim,
                     absl::StrCat("head_dim: ", own.head_dim, scope.Where(),
                                  " is odd, and ROPE turns pairs; set positions.rope_dims"));
    }
    model->own_heads.insert({scope.sublayer, own});
    return absl::OkStatus();
  };
  return ForEachSublayer(*model, visit);
}

absl::StatusOr<RopeNumbers> EvaluateRope(const PositionSpec& positions, const ScalarScope& scope) {
  RopeNumbers numbers;
  numbers.dims = scope.dims->head_dim;
  if (positions.rope_dims.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(const double dims, EvaluateScalar(*positions.rope_dims, scope));
    if (!(dims >= 0 && dims <= static_cast<double>(scope.dims->head_dim)) ||
        dims != 2 * std::floor(dims / 2)) {
      return ErrorIn(
          *positions.rope_dims,
          absl::StrCat("rope_dims: ", dims, scope.Where(), " must be an even number of a head's ",
                       scope.dims->head_dim, " elements, or 0 for none"));
    }
    numbers.dims = static_cast<int64_t>(dims);
  }
  PLUMB_ASSIGN_OR_RETURN(numbers.base,
                         Positive(positions.rope_base, "rope_base", positions.rope_theta, scope));
  for (const RopeScaling& scaling : positions.rope_scalings) {
    double holds = 1;
    if (scaling.when.has_value()) {
      PLUMB_ASSIGN_OR_RETURN(holds, EvaluateScalar(*scaling.when, scope));
    }
    if (holds == 0) continue;
    numbers.scaling = &scaling;
    break;
  }
  if (numbers.scaling == nullptr) return numbers;
  const RopeScaling& scaling = *numbers.scaling;
  if (scaling.linear.has_value()) {
    ScalarScope of_pair = scope;
    for (int64_t pair = 0; pair < std::max<int64_t>(numbers.dims / 2, 1); ++pair) {
      of_pair.indices = {{"pair", static_cast<double>(pair)}};
      PLUMB_ASSIGN_OR_RETURN(const double factor, EvaluateScalar(*scaling.linear, of_pair));
      if (factor == 0) {
        return ErrorIn(*scaling.linear, absl::StrCat("linear: 0", scope.Where(), " must not be 0"));
      }
      numbers.linear_factors.push_back(factor);
    }
  }
  const int64_t factors = static_cast<int64_t>(scaling.factors.size());
  if (scaling.kind == RopeScaling::Kind::kLongRope && numbers.dims != 0 &&
      factors != numbers.dims / 2) {
    return ErrorAt(
        scaling.place,
        absl::StrCat("longrope has ", factors, " factors", scope.Where(), ", but ",
                     numbers.dims / 2, " pairs of elements are rotated; give one factor a pair"));
  }
  if (scaling.kind == RopeScaling::Kind::kYarn && numbers.base <= 1) {
    const std::string message =
        absl::StrCat("yarn needs a base above 1, not ", numbers.base, scope.Where());
    if (positions.rope_base.has_value()) return ErrorIn(*positions.rope_base, message);
    return ErrorAt(positions.rope_theta_place, message);
  }
  return numbers;
}

absl::StatusOr<double> EvaluateAlibi(const PositionSpec& positions, const ScalarScope& scope) {
  if (positions.kind != PositionKind::kAlibi) return 0.0;
  return Positive(positions.alibi_scale, "alibi_scale", 1, scope);
}

absl::StatusOr<double> EvaluateEmbeddingScale(const ResolvedModel& model) {
  if (!model.embedding_scale.has_value()) return 1.0;
  ScalarScope scope;
  scope.dims = &model.dims;
  scope.placement = model.layers.front()->placement.get();
  return EvaluateScalar(*model.embedding_scale, scope);
}

absl::StatusOr<int64_t> WidestHidden(const ResolvedModel& model) {
  int64_t widest = 0;
  PLUMB_RETURN_IF_ERROR(ForEachSublayer(
      model, [&](const SublayerSpec& sublayer, const ScalarScope& scope) -> absl::Status {
        if (sublayer.kind == SublayerSpec::Kind::kMlp) {
          PLUMB_ASSIGN_OR_RETURN(const int64_t d_ff, EvaluateMlpWidth(sublayer.mlp, scope));
          widest = std::max(widest, d_ff);
        } else if (sublayer.kind == SublayerSpec::Kind::kExperts) {
          PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers,
                                 EvaluateExperts(sublayer.experts, scope));
          widest = std::max({widest, numbers.top_k * numbers.d_ff, numbers.shared_d_ff});
        }
        return absl::OkStatus();
      }));
  return widest;
}

absl::Status CheckSublayerNumbers(const ResolvedModel& model) {
  return ForEachSublayer(
      model, [&](const SublayerSpec& sublayer, const ScalarScope& scope) -> absl::Status {
        switch (sublayer.kind) {
          case SublayerSpec::Kind::kAttention:
            PLUMB_RETURN_IF_ERROR(EvaluateAttention(sublayer.attention, scope).status());
            PLUMB_RETURN_IF_ERROR(EvaluateAlibi(model.positions, scope).status());
            if (model.positions.kind != PositionKind::kRope) break;
            return EvaluateRope(model.positions, scope).status();
          case SublayerSpec::Kind::kMlp:
            return EvaluateMlpWidth(sublayer.mlp, scope).status();
          case SublayerSpec::Kind::kExperts:
            return EvaluateExperts(sublayer.experts, scope).status();
          case SublayerSpec::Kind::kLinearAttention:
            return EvaluateLinearAttention(sublayer.linear_attention, scope).status();
          case SublayerSpec::Kind::kConv:
            break;
        }
        return absl::OkStatus();
      });
}

}  // namespace plumb
