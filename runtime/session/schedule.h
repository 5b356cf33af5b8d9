// SPDX-License-Identifier: Apache-2.0
// The learning rate as a pure function of the step and a plain value.
#ifndef PLUMB_RUNTIME_SESSION_SCHEDULE_H_
#define PLUMB_RUNTIME_SESSION_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  double learning_rate = 1e-3;     // the peak
  double min_learning_rate = 0.0;  // the end of a decay
  int64_t warmup_steps = 0;
  bool warmup_multiplies = false;
  int64_t decay_steps = 0;     // the step at which a decay ends
  int64_t cooldown_steps = 0;  // for kWsd: length of the cooldown, which ends at decay_steps
  CooldownKind cooldown = CooldownKind::kLinear;

  ScheduleSpec() = default;
  explicit ScheduleSpec(const TrainSpec& recipe);
};

// Returns the learning rate of step t = 0, 1, 2, ...  With w = warmup_steps, d = decay_steps,
// c = cooldown_steps, range = learning_rate - min:
//
//   t < w:     learning_rate * ((t + 1) / w)
//   constant:  learning_rate
//   else, with p = (t - w) / (d - w), and p = 1 from t = d on:
//     linear:  min + range * (1 - p)
//     cosine:  min + range * (1 + cos(pi * p)) / 2      (Loshchilov & Hutter, SGDR)
//   WSD:       learning_rate before t = d - c; then, with p = (t - (d - c)) / c, the cooldown:
//              min + range * (1 - p), (1 - sqrt(p)) or (1 + cos(pi * p)) / 2
//              (Hu et al., MiniCPM; Hägele et al., "Scaling laws and compute-optimal training
//              beyond fixed training durations")
//   inverse square root:  max(min, learning_rate * sqrt(w' / (t + 1))), w' = max(1, w)
//              (Vaswani et al., "Attention is all you need")
//
// If warmup_multiplies: min(1, (t + 1) / w) times the formulas above with w = 0. Exception: the
// inverse square root keeps w as its scale, with max(w', t + 1) in place of t + 1.
//
// Without warm-up and min, linear is exactly learning_rate * (1 - t / d). A warm-up that is as long
// as the decay or longer is completed first. Requires: CheckSchedule accepts `spec`.
double LearningRate(const ScheduleSpec& spec, int64_t t);

// Fails with kInvalidArgument, with the field of train.proto, if the schedule is impossible.
absl::Status CheckSchedule(const ScheduleSpec& spec);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_SCHEDULE_H_
