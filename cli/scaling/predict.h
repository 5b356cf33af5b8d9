// SPDX-License-Identifier: Apache-2.0
// Predicted time of a data-parallel step, from one rank's measurements and the link between ranks:
// the model of docs/ranks.md. A step is simulated as the runtime runs it: ranks exchange the
// target counts of their units (forward and backward passes, train.units); each runs its units;
// buckets of gradients are sent in the order in which the last pass finishes them, each to the rank
// that owns it, which sums them; the squared gradient norms are all-reduced; and the sums, or the
// weights that their owner updated, are gathered. Pure functions.
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
  double bytes_per_second = 0;  // per direction and rank
  double latency = 0;  // seconds from the start of a send to the arrival of an empty message
};

// Parses "RATE,LATENCY": a rate in kbit, Mbit, Gbit or Tbit per second, a latency in ns, us, ms or
// s. Errors: kInvalidArgument with the malformed part and an example.
absl::StatusOr<Link> ParseLink(absl::string_view text);

// Returns text such as "25 Gbit/s, 20 us".
std::string LinkText(const Link& link);

enum class Sharding { kNone, kOptimizer, kGradients };  // train.shard

// Bucket of gradients that are sent together.
struct BucketCost {
  int64_t bytes = 0;          // size in f32
  double ready_seconds = 0;   // from the start of a unit's pass to its last gradient
  double update_seconds = 0;  // optimizer time for its parameters
};

// Costs that one rank measures when it is alone.
struct StepCosts {
  int64_t units = 1;
  double pass_seconds = 0;          // forward and backward of one unit
  double other_seconds = 0;         // per step, on every rank: batches, norms' states
  double add_bytes_per_second = 0;  // speed of adding gradients to a sum
  std::vector<BucketCost> buckets;  // in the order in which a pass finishes them
};

struct Cluster {
  Link link;
  int64_t ranks = 1;
  Sharding shard = Sharding::kNone;
  bool wire_bf16 = false;     // train.wire
  bool weights_bf16 = false;  // train.dtype
  // Factor by which a rank computes slower than alone: 2 if four ranks of one thread share two
  // processors.
  double slowdown = 1;
};

// Seconds of one step.
struct RankStepTime {
  double passes = 0;   // on the rank with the most units
  double waiting = 0;  // for target counts before the first pass, for gradients after the last
  double update = 0;
  double gathering = 0;  // gathering of sums or weights
  double other = 0;
  double total() const { return passes + waiting + update + gathering + other; }
};

// Returns the predicted times. Requires: 1 <= ranks <= units; rates are positive.
RankStepTime PredictStep(const StepCosts& costs, const Cluster& cluster);

// Seconds of one step of a rank that is alone.
struct StepShares {
  double passes = 0;  // forward and backward of all units
  double update = 0;  // optimizer
  double other = 0;
};

// Returns the profile's proportions, scaled to a step that takes `seconds` when its ops are not
// timed.
StepShares SharesOf(const Profile& profile, double seconds);

// Returns the costs for `ranks` ranks. `tensors`: number of elements of each tensor, in the model's
// order. Assumes that a pass finishes gradients from the last tensor to the first, evenly over its
// last two thirds; buckets are those of BucketPlan.
StepCosts CostsOf(const StepShares& shares, int64_t units, const std::vector<int64_t>& tensors,
                  double add_bytes_per_second, int64_t ranks);

// Parses "1,2,4", "1..1024" (its powers of two and the last), or both. Returns: the counts, sorted
// and without duplicates. Errors: kInvalidArgument with the malformed part.
absl::StatusOr<std::vector<int64_t>> ParseRankCounts(absl::string_view text);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SCALING_PREDICT_H_
