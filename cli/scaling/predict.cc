#include "cli/scaling/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace plumb::cli {
namespace {

// The rank that owns each bucket: the largest first, each to who has least.
std::vector<int64_t> Owners(const std::vector<BucketCost>& buckets, int64_t ranks) {
  std::vector<size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&buckets](size_t a, size_t b) { return buckets[a].bytes > buckets[b].bytes; });
  std::vector<int64_t> bytes(static_cast<size_t>(ranks)), owners(buckets.size());
  for (const size_t b : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += buckets[b].bytes;
    owners[b] = least - bytes.begin();
  }
  return owners;
}

// A message of `bytes` to each other rank, one after the other.
double ToOthers(double bytes, const Cluster& cluster) {
  return static_cast<double>(cluster.ranks - 1) * bytes / cluster.link.bytes_per_second;
}

// One number from every rank to all: to rank 0 and back, along binary trees.
double AgreementSeconds(const Cluster& cluster) {
  return 2 * std::ceil(std::log2(static_cast<double>(cluster.ranks))) * cluster.link.latency;
}

}  // namespace

RankStepTime PredictStep(const StepCosts& costs, const Cluster& cluster) {
  const size_t ranks = static_cast<size_t>(cluster.ranks);
  const bool is_alone = ranks == 1;
  const std::vector<int64_t> owners = Owners(costs.buckets, cluster.ranks);
  RankStepTime time;
  const int64_t units = (costs.units + cluster.ranks - 1) / cluster.ranks;
  const double pass = costs.pass_seconds * cluster.slowdown;
  time.passes = static_cast<double>(units) * pass;
  time.other = costs.other_seconds * cluster.slowdown;

  // Sums of subtrees, on their way to the owners: what a rank sends leaves in order, and so arrives
  // what an owner receives; it adds while the next bucket travels.
  std::vector<double> incoming(ranks, 0), added(ranks, 0), update(ranks, 0), owned(ranks, 0);
  const double wire = cluster.wire_bf16 ? 0.5 : 1;
  double outgoing = 0;
  for (size_t b = 0; b < costs.buckets.size(); ++b) {
    const BucketCost& bucket = costs.buckets[b];
    const size_t owner = static_cast<size_t>(owners[b]);
    const double bytes = static_cast<double>(bucket.bytes);
    update[owner] += bucket.update_seconds * cluster.slowdown;
    owned[owner] += bytes;
    if (is_alone) continue;
    const double ready = time.passes - pass + bucket.ready_seconds * cluster.slowdown;
    const double begin = std::max(ready, outgoing);
    outgoing = begin + bytes * wire / cluster.link.bytes_per_second;
    incoming[owner] =
        std::max(incoming[owner], begin + cluster.link.latency) + ToOthers(bytes * wire, cluster);
    added[owner] =
        std::max(added[owner], incoming[owner]) +
        static_cast<double>(ranks - 1) * bytes / costs.add_bytes_per_second * cluster.slowdown;
  }
  const double most_owned = *std::max_element(owned.begin(), owned.end());
  double all_updates = 0;
  for (const double seconds : update) all_updates += seconds;
  if (is_alone) {
    time.update = all_updates;
    return time;
  }
  const double summed = std::max(outgoing, *std::max_element(added.begin(), added.end()));
  // The numbers of targets go round before the first pass, and squares of gradients after the last.
  time.waiting = std::max(0.0, summed - time.passes) + 2 * AgreementSeconds(cluster);
  const bool is_sharded = cluster.shard != Sharding::kNone;
  time.update = is_sharded ? *std::max_element(update.begin(), update.end()) : all_updates;
  // An owner sends what it has to every other rank, which receives what it does not have.
  double whole = 0;
  for (const double bytes : owned) whole += bytes;
  // Weights that a bf16 program reads travel as it reads them.
  const double part = is_sharded && cluster.weights_bf16 ? 0.5 : 1;
  const double received =
      (whole - *std::min_element(owned.begin(), owned.end())) / cluster.link.bytes_per_second;
  time.gathering = cluster.link.latency + part * std::max(ToOthers(most_owned, cluster), received);
  return time;
}

}  // namespace plumb::cli
