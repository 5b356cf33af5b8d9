// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumb {

namespace {

// Returns the remaining part of a decay's range at p in [0, 1].
double Left(CooldownKind kind, double p) {
  constexpr double kPi = 3.14159265358979323846;
  if (kind == CooldownKind::kLinear) return 1.0 - p;
  if (kind == CooldownKind::kOneMinusSqrt) return 1.0 - std::sqrt(p);
  return 0.5 * (1.0 + std::cos(kPi * p));
}

// Returns the learning rate of a decay over steps [begin, end), t >= begin.
double Decay(const ScheduleSpec& spec, CooldownKind kind, int64_t begin, int64_t end, int64_t t) {
  if (t >= end) return spec.min_learning_rate;
  const double p = static_cast<double>(t - begin) / static_cast<double>(end - begin);
  return spec.min_learning_rate + (spec.learning_rate - spec.min_learning_rate) * Left(kind, p);
}

// Returns the learning rate of a schedule that begins at step `begin`.
double Scheduled(const ScheduleSpec& spec, int64_t begin, int64_t t) {
  switch (spec.kind) {
    case ScheduleKind::kConstant:
      return spec.learning_rate;
    case ScheduleKind::kLinear:
      return Decay(spec, CooldownKind::kLinear, begin, spec.decay_steps, t);
    case ScheduleKind::kCosine:
      return Decay(spec, CooldownKind::kCosine, begin, spec.decay_steps, t);
    case ScheduleKind::kWsd: {
      const int64_t cooldown = spec.decay_steps - spec.cooldown_steps;
      if (t < cooldown) return spec.learning_rate;
      return Decay(spec, spec.cooldown, cooldown, spec.decay_steps, t);
    }
    case ScheduleKind::kInverseSqrt:
      break;
  }
  const double scale = static_cast<double>(std::max<int64_t>(1, spec.warmup_steps));
  const double rate =
      spec.learning_rate * std::sqrt(scale / std::max(scale, static_cast<double>(t + 1)));
  return std::max(spec.min_learning_rate, rate);
}

}  // namespace

ScheduleSpec::ScheduleSpec(const TrainSpec& recipe)
    : kind(recipe.schedule),
      learning_rate(recipe.learning_rate),
      min_learning_rate(recipe.min_learning_rate),
      warmup_steps(recipe.warmup_steps),
      warmup_multiplies(recipe.warmup_multiplies),
      decay_steps(recipe.decay_steps),
      cooldown_steps(recipe.cooldown_steps),
      cooldown(recipe.cooldown) {}

double LearningRate(const ScheduleSpec& spec, int64_t t) {
  const bool warms_up = t < spec.warmup_steps;
  const double warmup =
      warms_up ? static_cast<double>(t + 1) / static_cast<double>(spec.warmup_steps) : 1.0;
  if (spec.warmup_multiplies) return warmup * Scheduled(spec, 0, t);
  return warms_up ? spec.learning_rate * warmup : Scheduled(spec, spec.warmup_steps, t);
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
  if (spec.kind == ScheduleKind::kConstant) return absl::OkStatus();
  if (!(spec.min_learning_rate >= 0 && spec.min_learning_rate <= spec.learning_rate)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_learning_rate must be between 0 and "
                     "learning_rate (",
                     spec.learning_rate, "), is ", spec.min_learning_rate));
  }
  if (spec.decay_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("decay_steps must be >= 1, is ", spec.decay_steps));
  }
  if (spec.kind == ScheduleKind::kWsd &&
      (spec.cooldown_steps < 1 || spec.cooldown_steps > spec.decay_steps)) {
    return absl::InvalidArgumentError(absl::StrCat("cooldown_steps must be between 1 and ",
                                                   "decay_steps (", spec.decay_steps, "), is ",
                                                   spec.cooldown_steps));
  }
  return absl::OkStatus();
}

}  // namespace plumb
