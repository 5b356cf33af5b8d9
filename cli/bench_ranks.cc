// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_ranks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/figures.h"
#include "cli/output.h"
#include "cli/scaling/predict.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"

namespace plumb::cli {
namespace {

constexpr double kSecondsOfARound = 0.25;
constexpr int kFirstSteps = 3;
// Floats that adding a gradient to a sum moves: two are read and one is written.
constexpr double kReadsAnAddition = 3;
constexpr double kHalf = 0.5;

// Measurements of a rank without communication.
struct Alone {
  StepShares shares;
  double add_bytes_per_second = 0;
  int64_t batch = 0, seq = 0, units = 0;
  std::vector<int64_t> tensors;
  Cluster exchange;  // how gradients are exchanged

  double seconds() const { return shares.passes + shares.update + shares.other; }
};

// Measurements of all ranks in joint steps.
struct Together {
  Series seconds;
  std::optional<Profile> profile;
};

// Returns the seconds of a step, per round. All ranks take the same steps, so an interruption of
// one ends the rounds of all.
absl::StatusOr<Series> TimeSteps(const char* what, const RankBenchOptions& options,
                                 TrainBench* bench, int64_t steps, Launch* launch,
                                 const Interrupts& interrupts) {
  Series seconds;
  for (int64_t round = 0; round < options.rounds; ++round) {
    if (launch->is_first()) {
      options.progress(absl::StrCat(what, ": round ", round + 1, " of ", options.rounds));
    }
    PLUMB_ASSIGN_OR_RETURN(const bool interrupted, launch->Any(interrupts.requested()));
    if (interrupted) return absl::CancelledError("interrupted");
    double sum = 0;
    for (int64_t i = 0; i < steps; ++i) {
      PLUMB_ASSIGN_OR_RETURN(const BenchStep step, bench->Step());
      sum += step.seconds;
    }
    seconds.Add(sum / static_cast<double>(steps));
  }
  return seconds;
}

absl::StatusOr<Profile> ProfileSteps(TrainBench* bench, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) {
    PLUMB_RETURN_IF_ERROR(bench->ProfiledStep().status());
  }
  return bench->TakeProfile();
}

// Returns the number of steps per round, the same on all ranks.
absl::StatusOr<int64_t> StepsOfARound(double seconds_per_step, Launch* launch) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<double> all,
                         AllGather(launch->ranks(), {seconds_per_step}));
  const double slowest = *std::max_element(all.begin(), all.end());
  return std::clamp<int64_t>(static_cast<int64_t>(kSecondsOfARound / slowest), 1, 10000);
}

// Takes some steps and returns the seconds of the last one.
absl::StatusOr<double> TakeFirstSteps(TrainBench* bench) {
  double last = 0;
  for (int i = 0; i < kFirstSteps; ++i) {
    PLUMB_ASSIGN_OR_RETURN(const BenchStep step, bench->Step());
    last = step.seconds;
  }
  return last;
}

Sharding ShardingOf(const std::string& shard) {
  if (shard == "OPTIMIZER") return Sharding::kOptimizer;
  return shard == "GRADIENTS" ? Sharding::kGradients : Sharding::kNone;
}

// Fails if a fixed batch has fewer units than there are ranks to share them.
absl::Status CheckUnits(const RankBenchOptions& options, const Alone& alone,
                        const std::vector<int64_t>& counts) {
  if (!options.fixed_batch || counts.back() <= alone.units) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks: ", counts.back(), " ranks cannot share a batch of ", alone.units,
                   alone.units == 1 ? " unit" : " units", ": --set train.units=", counts.back(),
                   " makes as many, and without --fixed-batch every rank has a batch of its own"));
}

// Measures without communication, on all ranks at once, because ranks of one machine slow each
// other down as they will in training. Returns the slowest rank's times.
absl::StatusOr<Alone> MeasureAlone(const RankBenchOptions& options, const ModelSource& model,
                                   const std::vector<int64_t>& counts, HostRuntime* runtime,
                                   Launch* launch, const Interrupts& interrupts) {
  Alone alone;
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<TrainBench> bench,
                         TrainBench::Open(runtime, model, options.request));
  alone.batch = bench->batch();
  alone.seq = bench->seq();
  alone.units = bench->units();
  alone.tensors = bench->tensor_elements();
  alone.exchange.shard = ShardingOf(bench->shard());
  alone.exchange.wire_bf16 = bench->wire() == "BF16";
  alone.exchange.weights_bf16 = bench->dtype() == "bf16";
  PLUMB_RETURN_IF_ERROR(CheckUnits(options, alone, counts));
  PLUMB_ASSIGN_OR_RETURN(const double once, TakeFirstSteps(bench.get()));
  PLUMB_ASSIGN_OR_RETURN(const int64_t steps, StepsOfARound(once, launch));
  PLUMB_ASSIGN_OR_RETURN(const Series seconds,
                         TimeSteps("alone", options, bench.get(), steps, launch, interrupts));
  PLUMB_ASSIGN_OR_RETURN(const Profile profile, ProfileSteps(bench.get(), options.rounds * steps));
  PLUMB_ASSIGN_OR_RETURN(const double read, MachineSpeed(*runtime).Measure(api::Speed::kRead));
  const StepShares shares = SharesOf(profile, seconds.Median());
  const std::vector<double> mine = {shares.passes, shares.update, shares.other,
                                    read / kReadsAnAddition};
  PLUMB_ASSIGN_OR_RETURN(const std::vector<double> all, AllGather(launch->ranks(), mine));
  for (size_t i = 0; i < all.size(); i += mine.size()) {
    const StepShares of_rank = {all[i], all[i + 1], all[i + 2]};
    if (of_rank.passes + of_rank.update + of_rank.other < alone.seconds()) continue;
    alone.shares = of_rank;
    alone.add_bytes_per_second = all[i + 3];
  }
  return alone;
}

// Returns the request for joint training: the batches and units of all ranks together.
TrainBenchRequest RequestOfAll(const RankBenchOptions& options, const Alone& alone,
                               Launch* launch) {
  TrainBenchRequest request = options.request;
  request.ranks = launch->communicator();
  if (options.fixed_batch) return request;
  request.batch = alone.batch * launch->size();
  request.train_overrides.emplace_back("units", absl::StrCat(alone.units * launch->size()));
  return request;
}

absl::StatusOr<Together> MeasureTogether(const RankBenchOptions& options, const ModelSource& model,
                                         const Alone& alone, HostRuntime* runtime, Launch* launch,
                                         const Interrupts& interrupts) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<TrainBench> bench,
                         TrainBench::Open(runtime, model, RequestOfAll(options, alone, launch)));
  PLUMB_ASSIGN_OR_RETURN(const double once, TakeFirstSteps(bench.get()));
  PLUMB_ASSIGN_OR_RETURN(const int64_t steps, StepsOfARound(once, launch));
  PLUMB_ASSIGN_OR_RETURN(Series seconds,
                         TimeSteps("together", options, bench.get(), steps, launch, interrupts));
  Together together;
  together.seconds = std::move(seconds);
  if (!options.profile) return together;
  PLUMB_ASSIGN_OR_RETURN(Profile profile, ProfileSteps(bench.get(), options.rounds * steps));
  together.profile = std::move(profile);
  return together;
}

// Returns the link of --link, or else the slowest bandwidth and latency among the job's links;
// ranks on one machine have a link, too.
absl::StatusOr<Link> LinkOf(const RankBenchOptions& options, Launch* launch) {
  if (!options.link.empty()) return ParseLink(options.link);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<RankLink> links, launch->MeasureAllLinks());
  Link slowest = {links.at(0).bytes_per_second, 0};
  for (const RankLink& each : links) {
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, each.bytes_per_second);
    slowest.latency = std::max(slowest.latency, each.latency_seconds);
  }
  return slowest;
}

struct PredictedStep {
  int64_t ranks = 0, batch = 0;
  RankStepTime time;
  double tokens_per_second = 0;
  double efficiency = 0;  // relative to a rank that is alone
  std::optional<double> measured;
};

std::vector<PredictedStep> Predict(const RankBenchOptions& options, const Alone& alone,
                                   Cluster cluster, const std::vector<int64_t>& counts) {
  const auto row = [&](int64_t ranks) {
    PredictedStep made;
    made.ranks = ranks;
    cluster.ranks = ranks;
    const int64_t batches = options.fixed_batch ? 1 : ranks;
    made.batch = alone.batch * batches;
    StepCosts costs =
        CostsOf(alone.shares, alone.units, alone.tensors, alone.add_bytes_per_second, ranks);
    costs.units *= batches;
    made.time = PredictStep(costs, cluster);
    made.tokens_per_second = static_cast<double>(made.batch * alone.seq) / made.time.total();
    return made;
  };
  const double one = row(1).tokens_per_second;
  std::vector<PredictedStep> rows;
  for (const int64_t ranks : counts) {
    rows.push_back(row(ranks));
    rows.back().efficiency = rows.back().tokens_per_second / one / static_cast<double>(ranks);
  }
  return rows;
}

std::string Ms(double seconds) { return absl::StrFormat("%.2f ms", seconds * 1e3); }

std::string ToText(const RankBenchOptions& options, const Alone& alone, const Cluster& cluster,
                   const std::vector<PredictedStep>& rows, int64_t here) {
  std::string text =
      absl::StrFormat("%6s %9s %12s %12s %9s %11s %12s %11s\n", "ranks", "batch", "step",
                      "tokens/s", "speedup", "efficiency", "not hidden", "measured");
  const PredictedStep* low = nullptr;
  for (const PredictedStep& row : rows) {
    if (low == nullptr && row.efficiency < kHalf) low = &row;
    absl::StrAppendFormat(&text, "%6d %9d %12s %12.0f %9.2f %9.0f %% %12s %11s", row.ranks,
                          row.batch, Ms(row.time.total()), row.tokens_per_second,
                          row.efficiency * static_cast<double>(row.ranks), row.efficiency * 100,
                          Ms(row.time.waiting + row.time.gathering),
                          row.measured.has_value() ? Ms(*row.measured) : "-");
    if (row.measured.has_value()) {
      absl::StrAppendFormat(&text, "  predicted / measured %.2f", row.time.total() / *row.measured);
    }
    text += '\n';
  }
  int64_t elements = 0;
  for (const int64_t each : alone.tensors) elements += each;
  absl::StrAppendFormat(
      &text,
      "\nOne rank alone: passes of %d unit%s %s, optimizer %s, the rest %s%s.\n"
      "Links of %s; %.1f MB of gradients%s. %s.\n"
      "Assumed: every rank is as fast as the slowest here, on a machine of its own unless it was\n"
      "measured so; no link is shared; gradients are done evenly over the last two thirds of a "
      "pass.\n",
      alone.units, alone.units == 1 ? "" : "s", Ms(alone.shares.passes), Ms(alone.shares.update),
      Ms(alone.shares.other),
      here > 1 ? absl::StrCat(" (the slowest of ", here, " that compute at once)") : "",
      LinkText(cluster.link), static_cast<double>(elements) * 4e-6,
      cluster.wire_bf16 ? ", half as much on the wire" : "",
      options.fixed_batch ? "The batch is shared: ranks do not change the numbers"
                          : "Every rank has a batch of its own: the step's grows with the ranks");
  if (low != nullptr) {
    absl::StrAppendFormat(&text, "From %d ranks on more than half of the time is lost.\n",
                          low->ranks);
  }
  return text;
}

Json ToJson(const RankBenchOptions& options, const Alone& alone, const Cluster& cluster,
            const std::vector<PredictedStep>& rows, const Together& together, int64_t threads) {
  Json json = {
      {"model", options.model},
      {"threads", threads},
      {"rounds", options.rounds},
      {"fixed_batch", options.fixed_batch},
      {"link",
       {{"bytes_per_second", cluster.link.bytes_per_second}, {"latency", cluster.link.latency}}},
      {"alone",
       {{"passes", alone.shares.passes},
        {"update", alone.shares.update},
        {"other", alone.shares.other},
        {"units", alone.units},
        {"batch", alone.batch},
        {"add_bytes_per_second", alone.add_bytes_per_second}}},
      {"ranks", Json::array()}};
  for (const PredictedStep& row : rows) {
    Json each = {{"ranks", row.ranks},
                 {"batch", row.batch},
                 {"seconds", row.time.total()},
                 {"passes", row.time.passes},
                 {"waiting", row.time.waiting},
                 {"update", row.time.update},
                 {"gathering", row.time.gathering},
                 {"other", row.time.other},
                 {"tokens_per_second", row.tokens_per_second},
                 {"efficiency", row.efficiency}};
    if (row.measured.has_value()) each["measured"] = together.seconds.ToJson();
    json["ranks"].push_back(std::move(each));
  }
  if (together.profile.has_value()) json["profile"] = ProfileJson(*together.profile);
  return json;
}

absl::StatusOr<std::vector<int64_t>> CountsOf(const RankBenchOptions& options, int64_t here) {
  if (options.counts.empty()) return std::vector<int64_t>{here};
  PLUMB_ASSIGN_OR_RETURN(std::vector<int64_t> counts, ParseRankCounts(options.counts));
  if (here > 1 && std::find(counts.begin(), counts.end(), here) == counts.end()) {
    counts.push_back(here);
    std::sort(counts.begin(), counts.end());
  }
  return counts;
}

}  // namespace

absl::StatusOr<int> BenchRanks(const RankBenchOptions& options, const ModelSource& model,
                               HostRuntime* runtime, Launch* launch, const Interrupts& interrupts) {
  const int64_t here = launch->size();
  if (options.link.empty() && here == 1) {
    return absl::InvalidArgumentError(
        "--link is missing; give the link between ranks, for example --link 25Gbit,20us (under "
        "mpirun it is measured)");
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, CountsOf(options, here));
  PLUMB_ASSIGN_OR_RETURN(const Link link, LinkOf(options, launch));
  PLUMB_ASSIGN_OR_RETURN(const Alone alone,
                         MeasureAlone(options, model, counts, runtime, launch, interrupts));
  Together together;
  if (here > 1) {
    PLUMB_ASSIGN_OR_RETURN(together,
                           MeasureTogether(options, model, alone, runtime, launch, interrupts));
  }
  if (!launch->is_first()) return kExitOk;
  Cluster cluster = alone.exchange;
  cluster.link = link;
  std::vector<PredictedStep> rows = Predict(options, alone, cluster, counts);
  for (PredictedStep& row : rows) {
    if (here > 1 && row.ranks == here) row.measured = together.seconds.Median();
  }
  options.progress("");
  std::string text = ToText(options, alone, cluster, rows, here);
  if (together.profile.has_value()) {
    absl::StrAppend(&text, "\nRank 0:\n", ProfileTable(*together.profile));
  }
  return ExitOk(options.json
                    ? PrintJson(ToJson(options, alone, cluster, rows, together, runtime->threads()))
                    : PrintResult(text));
}

}  // namespace plumb::cli
