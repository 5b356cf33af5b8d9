#include "runtime/session/schedule.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumb {

double LearningRate(const ScheduleSpec& spec, int64_t t) {
  constexpr double kPi = 3.14159265358979323846;
  const int64_t warmup = spec.warmup_steps;
  if (t < warmup) {
    return spec.learning_rate * (static_cast<double>(t + 1) / static_cast<double>(warmup));
  }
  if (spec.kind == ScheduleSpec::Kind::kConstant) return spec.learning_rate;
  const double min = spec.min_learning_rate;
  if (t >= spec.decay_steps) return min;
  const double p = static_cast<double>(t - warmup) / static_cast<double>(spec.decay_steps - warmup);
  if (spec.kind == ScheduleSpec::Kind::kLinear) return min + (spec.learning_rate - min) * (1.0 - p);
  return min + (spec.learning_rate - min) * 0.5 * (1.0 + std::cos(kPi * p));
}

absl::Status CheckSchedule(const ScheduleSpec& spec) {
  if (!std::isfinite(spec.learning_rate) || spec.learning_rate < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning_rate must be a finite number >= 0, is ", spec.learning_rate));
  }
  if (spec.warmup_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("warmup_steps must be >= 0, is ", spec.warmup_steps));
  }
  if (spec.kind == ScheduleSpec::Kind::kConstant) return absl::OkStatus();
  if (!(spec.min_learning_rate >= 0 && spec.min_learning_rate <= spec.learning_rate)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_learning_rate must lie between 0 and "
                     "learning_rate (",
                     spec.learning_rate, "), is ", spec.min_learning_rate));
  }
  if (spec.decay_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("decay_steps must be >= 1, is ", spec.decay_steps));
  }
  return absl::OkStatus();
}

}  // namespace plumb
