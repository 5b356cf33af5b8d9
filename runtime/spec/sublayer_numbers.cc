#include "runtime/spec/sublayer_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// The field's value, which must be finite in f32 and not negative; 0 where it is absent.
absl::StatusOr<double> NotNegative(const std::optional<Expression>& field, const char* name,
                                   const char* what, const ScalarScope& scope) {
  if (!field.has_value()) return 0.0;
  PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(*field, scope));
  if (value >= 0 && value <= static_cast<double>(std::numeric_limits<float>::max())) return value;
  return ErrorInText(field->text, field->root.offset,
                     absl::StrCat(name, ": ", value, scope.Where(), " must be ", what));
}

// A whole number in least..most.
absl::StatusOr<int64_t> WholeNumber(const Expression& field, const char* name, int64_t least,
                                    int64_t most, const ScalarScope& scope) {
  PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(field, scope));
  if (value >= static_cast<double>(least) && value <= static_cast<double>(most) &&
      value == std::floor(value)) {
    return static_cast<int64_t>(value);
  }
  return ErrorInText(
      field.text, field.root.offset,
      absl::StrCat(name, ": ", value, scope.Where(), " is no whole number in ", least, "..", most));
}

// visit(sublayer, scope) at every place of the model, until the first error.
template <class Visit>
absl::Status ForEachSublayer(const ResolvedModel& model, const Visit& visit) {
  ScalarScope scope;
  scope.dims = &model.dims;
  for (const auto& block : model.layers) {
    ++scope.layer;
    scope.placement = block->placement.get();
    for (const SublayerSpec& sublayer : block->sublayers) {
      ++scope.sublayer;
      PLUMB_RETURN_IF_ERROR(visit(sublayer, scope));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxExperts = 1 << 16;

}  // namespace

absl::StatusOr<int64_t> EvaluateMlpWidth(const MlpSpec& spec, const ScalarScope& scope) {
  if (!spec.d_ff.has_value()) return scope.dims->d_ff;
  return WholeNumber(*spec.d_ff, "d_ff", 1, kMaxWidth, scope);
}

absl::StatusOr<ExpertsNumbers> EvaluateExperts(const ExpertsSpec& spec, const ScalarScope& scope) {
  ExpertsNumbers numbers;
  PLUMB_ASSIGN_OR_RETURN(numbers.n_expert,
                         WholeNumber(spec.n_expert, "n_expert", 1, kMaxExperts, scope));
  PLUMB_ASSIGN_OR_RETURN(numbers.top_k,
                         WholeNumber(spec.top_k, "top_k", 1, numbers.n_expert, scope));
  PLUMB_ASSIGN_OR_RETURN(numbers.d_ff, EvaluateMlpWidth(spec.mlp, scope));
  if (spec.shared_d_ff.has_value()) {
    const int64_t least = spec.shared_gate ? 1 : 0;
    PLUMB_ASSIGN_OR_RETURN(numbers.shared_d_ff,
                           WholeNumber(*spec.shared_d_ff, "shared_d_ff", least, kMaxWidth, scope));
  }
  PLUMB_ASSIGN_OR_RETURN(numbers.balance_loss,
                         NotNegative(spec.balance_loss, "balance_loss",
                                     "a coefficient above 0, or 0 for no such loss", scope));
  if (spec.scale.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(numbers.scale, EvaluateScalar(*spec.scale, scope));
  }
  return numbers;
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
  constexpr char kWhat[] = "a whole number of tokens from 1 on, or 0 for all of them";
  PLUMB_ASSIGN_OR_RETURN(const double window, NotNegative(spec.window, "window", kWhat, scope));
  if (window != std::floor(window)) {
    return ErrorInText(spec.window->text, spec.window->root.offset,
                       absl::StrCat("window: ", window, scope.Where(), " must be ", kWhat));
  }
  const double context = static_cast<double>(scope.dims->context_length);
  numbers.window = window < context ? static_cast<int64_t>(window) : 0;
  return numbers;
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
      model, [](const SublayerSpec& sublayer, const ScalarScope& scope) -> absl::Status {
        switch (sublayer.kind) {
          case SublayerSpec::Kind::kAttention:
            return EvaluateAttention(sublayer.attention, scope).status();
          case SublayerSpec::Kind::kMlp:
            return EvaluateMlpWidth(sublayer.mlp, scope).status();
          case SublayerSpec::Kind::kExperts:
            return EvaluateExperts(sublayer.experts, scope).status();
          case SublayerSpec::Kind::kConv:
            break;
        }
        return absl::OkStatus();
      });
}

}  // namespace plumb
