#include "runtime/spec/sublayer_numbers.h"

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

}  // namespace

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

absl::Status CheckSublayerNumbers(const ResolvedModel& model) {
  ScalarScope scope;
  scope.dims = &model.dims;
  for (const auto& block : model.layers) {
    ++scope.layer;
    scope.placement = block->placement.get();
    for (const SublayerSpec& sublayer : block->sublayers) {
      ++scope.sublayer;
      if (sublayer.kind != SublayerSpec::Kind::kAttention) continue;
      PLUMB_ASSIGN_OR_RETURN(const AttentionNumbers numbers,
                             EvaluateAttention(sublayer.attention, scope));
      if (!model.bidirectional || numbers.window == 0) continue;
      const Expression& window = *sublayer.attention.window;
      return ErrorInText(window.text, window.root.offset,
                         absl::StrCat("window: ", numbers.window, scope.Where(),
                                      " looks back from a token, and the model is bidirectional; ",
                                      "leave one of the two out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
