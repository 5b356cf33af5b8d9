// SPDX-License-Identifier: Apache-2.0
#include "cli/scaling/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

// Returns the rank that owns each bucket: assigns the largest first, each to the rank with the
// fewest bytes.
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

// Returns the seconds to send `bytes` to each other rank, one after the other.
double ToOthers(double bytes, const Cluster& cluster) {
  return static_cast<double>(cluster.ranks - 1) * bytes / cluster.link.bytes_per_second;
}

// Returns the seconds of an all-reduce of one number: to rank 0 and back, along binary trees.
double AgreementSeconds(const Cluster& cluster) {
  return 2 * std::ceil(std::log2(static_cast<double>(cluster.ranks))) * cluster.link.latency;
}

constexpr int64_t kBytes = 4;                       // bytes of a gradient's element
constexpr int64_t kBucketBytes = int64_t{1} << 20;  // same as in runtime/session/bucket_plan.cc
constexpr int64_t kMaxPredictedRanks = int64_t{1} << 20;

absl::StatusOr<int64_t> ParseCount(absl::string_view text, absl::string_view whole) {
  int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 && count <= kMaxPredictedRanks) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks: \"", text, "\" in \"", whole, "\" is not a number of ranks from 1 to ",
                   kMaxPredictedRanks, "; for example --ranks 1,2,4 or --ranks 1..1024"));
}

// Returns the bytes of each bucket, in the model's order.
std::vector<int64_t> BucketBytes(const std::vector<int64_t>& tensors, int64_t ranks) {
  int64_t all = 0;
  for (const int64_t elements : tensors) all += elements * kBytes;
  const int64_t enough = std::min(kBucketBytes, all / (2 * ranks));
  std::vector<int64_t> buckets;
  for (const int64_t elements : tensors) {
    const int64_t bytes = elements * kBytes;
    if (buckets.empty() || bytes >= enough || buckets.back() >= enough) buckets.push_back(0);
    buckets.back() += bytes;
  }
  return buckets;
}

struct Unit {
  const char* name;
  double factor;
};

// Longer names come first, because every name of a time ends in "s".
constexpr std::array<Unit, 4> kRates = {
    {{"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}, {"Tbit", 1e12 / 8}}};
constexpr std::array<Unit, 4> kTimes = {{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};

absl::StatusOr<double> ParseQuantity(absl::string_view text, const std::array<Unit, 4>& units,
                                     absl::string_view what) {
  std::vector<absl::string_view> names;
  for (const Unit& unit : units) {
    names.push_back(unit.name);
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || value < 0) break;
    return value * unit.factor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--link: the ", what, " \"", text, "\" is not a number with one of ",
                   absl::StrJoin(names, ", "), ", as in 25Gbit,20us"));
}

// Formats a value in the largest unit that does not exceed it, or else in the smallest unit.
std::string InItsUnit(double value, const std::array<Unit, 4>& units) {
  const Unit* chosen = nullptr;
  for (const Unit& unit : units) {
    const bool fits = unit.factor <= value;
    if (chosen == nullptr || (fits && (unit.factor > chosen->factor || chosen->factor > value)) ||
        (!fits && unit.factor < chosen->factor)) {
      chosen = &unit;
    }
  }
  return absl::StrFormat("%.3g %s", value / chosen->factor, chosen->name);
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

  // Sums of subtrees are sent to the owners in order, so an owner also receives them in order; it
  // adds one bucket while the next is in transit.
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
  const double max_owned = *std::max_element(owned.begin(), owned.end());
  double all_updates = 0;
  for (const double seconds : update) all_updates += seconds;
  if (is_alone) {
    time.update = all_updates;
    return time;
  }
  const double summed = std::max(outgoing, *std::max_element(added.begin(), added.end()));
  // Target counts are all-reduced before the first pass, and squared gradient norms after the last.
  time.waiting = std::max(0.0, summed - time.passes) + 2 * AgreementSeconds(cluster);
  const bool is_sharded = cluster.shard != Sharding::kNone;
  time.update = is_sharded ? *std::max_element(update.begin(), update.end()) : all_updates;
  // An owner sends its part to every other rank, and receives all other parts.
  double whole = 0;
  for (const double bytes : owned) whole += bytes;
  // Weights that a bf16 program reads are sent as bf16.
  const double part = is_sharded && cluster.weights_bf16 ? 0.5 : 1;
  const double received =
      (whole - *std::min_element(owned.begin(), owned.end())) / cluster.link.bytes_per_second;
  time.gathering = cluster.link.latency + part * std::max(ToOthers(max_owned, cluster), received);
  return time;
}

StepShares SharesOf(const Profile& profile, double seconds) {
  StepShares shares;
  for (const ProfileRow& row : profile.rows) {
    double& share = row.in_graph              ? shares.passes
                    : row.name == "optimizer" ? shares.update
                                              : shares.other;
    share += row.seconds;
  }
  const double all = shares.passes + shares.update + shares.other;
  const double scale = all > 0 ? seconds / all : 0;
  return {shares.passes * scale, shares.update * scale, shares.other * scale};
}

StepCosts CostsOf(const StepShares& shares, int64_t units, const std::vector<int64_t>& tensors,
                  double add_bytes_per_second, int64_t ranks) {
  StepCosts costs;
  costs.units = units;
  costs.pass_seconds = shares.passes / static_cast<double>(units);
  costs.other_seconds = shares.other;
  costs.add_bytes_per_second = add_bytes_per_second;
  std::vector<int64_t> buckets = BucketBytes(tensors, ranks);
  std::reverse(buckets.begin(), buckets.end());
  double all = 0, finished = 0;
  for (const int64_t bytes : buckets) all += static_cast<double>(bytes);
  for (const int64_t bytes : buckets) {
    const double part = static_cast<double>(bytes) / all;
    finished += part;
    costs.buckets.push_back(
        {bytes, costs.pass_seconds * (1 + 2 * finished) / 3, shares.update * part});
  }
  return costs;
}

absl::StatusOr<std::vector<int64_t>> ParseRankCounts(absl::string_view text) {
  std::set<int64_t> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits("..", 1));
    const bool is_range = part.find("..") != absl::string_view::npos;
    PLUMB_ASSIGN_OR_RETURN(const int64_t first, ParseCount(ends.first, text));
    PLUMB_ASSIGN_OR_RETURN(const int64_t last,
                           ParseCount(is_range ? ends.second : ends.first, text));
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ranks: \"", part,
                       "\" ends before it begins; write the smaller number first, as in 1..64"));
    }
    counts.insert(first);
    for (int64_t n = 1; n < last; n *= 2) {
      if (n > first) counts.insert(n);
    }
    counts.insert(last);
  }
  return std::vector<int64_t>(counts.begin(), counts.end());
}

absl::StatusOr<Link> ParseLink(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(',', 1));
  PLUMB_ASSIGN_OR_RETURN(const double rate, ParseQuantity(parts.first, kRates, "rate"));
  if (rate == 0)
    return absl::InvalidArgumentError("--link: the rate must be above zero, as in 25Gbit,20us");
  PLUMB_ASSIGN_OR_RETURN(const double latency, ParseQuantity(parts.second, kTimes, "latency"));
  return Link{rate, latency};
}

std::string LinkText(const Link& link) {
  return absl::StrCat(InItsUnit(link.bytes_per_second, kRates), "/s, ",
                      link.latency == 0 ? "0 s" : InItsUnit(link.latency, kTimes));
}

}  // namespace plumb::cli
