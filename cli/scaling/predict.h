// SPDX-License-Identifier: Apache-2.0
// The time of a data-parallel step, from what one rank measures and the link between ranks: the
// model of docs/ranks.md. A step is simulated as the runtime runs it: ranks tell each other how
// many targets their units have; each passes over its units; the buckets of gradients leave in the
// order in which the last pass finishes them, each for the rank that owns it, which adds what the
// others send; the norm of the gradients goes round; and sums, or the weights that their owner
// updated, come back. Pure functions.
#ifndef PLUMB_CLI_SCALING_PREDICT_H_
#define PLUMB_CLI_SCALING_PREDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/profile.h"

namespace plumb::cli {

struct Link {
  double bytes_per_second = 0;  // each way at once, of one rank
  double latency = 0;  // seconds from the start of a send to the arrival of an empty message
};

// "RATE,LATENCY": a rate in kbit, Mbit, Gbit or Tbit a second, a latency in ns, us, ms or s.
// kInvalidArgument says what of it is wrong, with an example.
absl::StatusOr<Link> ParseLink(absl::string_view text);

// "25 Gbit/s, 20 us"
std::string LinkText(const Link& link);

enum class Sharding { kNone, kOptimizer, kGradients };  // train.shard

// Gradients that travel together.
struct BucketCost {
  int64_t bytes = 0;          // of f32
  double ready_seconds = 0;   // from the start of a unit's pass to the last of its gradients
  double update_seconds = 0;  // of its parameters, by the optimizer
};

// What one rank measures when it is alone.
struct StepCosts {
  int64_t units = 1;
  double pass_seconds = 0;          // forward and backward, of one unit
  double other_seconds = 0;         // of a step, on every rank: batches, norms' states
  double add_bytes_per_second = 0;  // of gradients, added to a sum
  std::vector<BucketCost> buckets;  // in the order in which a pass finishes them
};

struct Cluster {
  Link link;
  int64_t ranks = 1;
  Sharding shard = Sharding::kNone;
  bool wire_bf16 = false;     // train.wire
  bool weights_bf16 = false;  // train.dtype
  // How much slower a rank computes than alone: 2 where four ranks of one thread share two
  // processors.
  double slowdown = 1;
};

// Seconds of one step.
struct RankStepTime {
  double passes = 0;   // of the rank with the most units
  double waiting = 0;  // for numbers of targets before the first pass, for gradients after the last
  double update = 0;
  double gathering = 0;  // of sums or weights
  double other = 0;
  double total() const { return passes + waiting + update + gathering + other; }
};

// REQUIRES: 1 <= ranks <= units; rates are above zero.
RankStepTime PredictStep(const StepCosts& costs, const Cluster& cluster);

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

#endif  // PLUMB_CLI_SCALING_PREDICT_H_
