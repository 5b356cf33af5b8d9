// What PredictStep is told of a step: from how long one takes, where its time goes, and how large
// the model's tensors are. Pure functions.
#ifndef PLUMB_CLI_SCALING_COSTS_H_
#define PLUMB_CLI_SCALING_COSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/scaling/predict.h"
#include "runtime/tools/profile.h"

namespace plumb::cli {

// Seconds of one step of a rank that is alone.
struct StepShares {
  double passes = 0;  // forward and backward, of all units
  double update = 0;  // by the optimizer
  double other = 0;
};

// A profile's proportions, of steps that take `seconds` when nobody times their ops.
StepShares SharesOf(const Profile& profile, double seconds);

// The costs for `ranks` ranks. `tensors`: elements of each, in the model's order. A pass finishes
// gradients from the last tensor to the first, evenly over its last two thirds; buckets are those
// of BucketPlan.
StepCosts CostsOf(const StepShares& shares, int64_t units, const std::vector<int64_t>& tensors,
                  double add_bytes_per_second, int64_t ranks);

// "1,2,4", "1..1024" (its powers of two and the last), or both; in order, each once.
// kInvalidArgument says what of it is wrong.
absl::StatusOr<std::vector<int64_t>> ParseRankCounts(absl::string_view text);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SCALING_COSTS_H_
