// The learning rate as a function of the step. A pure function of a plain value.
#ifndef PLUMB_RUNTIME_SESSION_SCHEDULE_H_
#define PLUMB_RUNTIME_SESSION_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace plumb {

struct ScheduleSpec {
  enum class Kind { kConstant, kLinear, kCosine };

  Kind kind = Kind::kConstant;
  double learning_rate = 1e-3;     // the peak
  double min_learning_rate = 0.0;  // where linear and cosine end
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // the step at which linear and cosine get there
};

// The learning rate of step t = 0, 1, 2, ...  With w = warmup_steps, d = decay_steps:
//
//   t < w:     learning_rate * ((t + 1) / w)
//   constant:  learning_rate
//   else, with p = (t - w) / (d - w), and p = 1 from t = d on:
//     linear:  min + (learning_rate - min) * (1 - p)
//     cosine:  min + (learning_rate - min) * (1 + cos(pi * p)) / 2      (Loshchilov & Hutter, SGDR)
//
// Without warm-up and min, linear is learning_rate * (1 - t / d) to the last bit. A warm-up that is
// as long as the decay or longer runs its course first. REQUIRES: a spec that CheckSchedule passes.
double LearningRate(const ScheduleSpec& spec, int64_t t);

// InvalidArgument for what no schedule can be, naming the field of train.proto.
absl::Status CheckSchedule(const ScheduleSpec& spec);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_SCHEDULE_H_
