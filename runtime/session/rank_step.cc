// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/rank_step.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/check.h"
#include "runtime/base/divide.h"
#include "runtime/formats/hash.h"
#include "runtime/ranks/collectives.h"
#include "runtime/session/gradient_exchange.h"
#include "runtime/session/unit_tree.h"

namespace plumb {

absl::Status CheckRanks(const ModelContext& context, const TrainSpec& spec, int ranks) {
  if (ranks <= 1) return absl::OkStatus();
  const int64_t sequences = spec.batch_size * spec.gradient_accumulation_steps;
  if (ranks > sequences) {
    return absl::InvalidArgumentError(absl::StrCat(
        ranks, " ranks, and a step of ", sequences, sequences == 1 ? " sequence" : " sequences",
        ": each rank computes one or more; start fewer ranks, or set train.batch_size to at least ",
        CeilDiv(ranks, spec.gradient_accumulation_steps)));
  }
  if (ranks > spec.num_units()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, " ranks, and a step of ", spec.num_units(),
                     spec.num_units() == 1 ? " unit" : " units",
                     ": each rank computes one unit or more; start fewer ranks, or set train.units "
                     "to a multiple "
                     "of gradient_accumulation_steps (",
                     spec.gradient_accumulation_steps, ") that is at least ", ranks));
  }
  for (const NormStateSpec& state : context.states) {
    if (state.name == StateName(kStepBuffer) || !state.correction.empty()) continue;
    absl::string_view site = state.name;
    absl::ConsumeSuffix(&site, ".state");
    return absl::InvalidArgumentError(absl::StrCat(
        "the norm of ", site,
        " keeps statistics from one unit of a step to the next, which ranks that compute them at "
        "the same time cannot; train it with one rank, or use a norm without statistics over "
        "tokens"));
  }
  return absl::OkStatus();
}

absl::Status AgreeToTrain(Communicator* ranks, const ModelContext& context, const TrainSpec& spec,
                          int64_t max_seq, const ParameterStore& weights) {
  ContentHasher hasher;
  const std::vector<ParameterLayout::Entry>& entries = weights.layout().entries;
  std::vector<float> piece(size_t{1} << 16);
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t all = entries[i].end - entries[i].begin;
    for (int64_t at = 0; at < all; at += static_cast<int64_t>(piece.size())) {
      const int64_t n = std::min(static_cast<int64_t>(piece.size()), all - at);
      weights.Read(i, at, n, piece.data());
      hasher.Update(
          {reinterpret_cast<const char*>(piece.data()), static_cast<size_t>(n) * sizeof(float)});
    }
  }
  const std::vector<Fact> facts = {
      {"recipe", HexDigits(ContentHash(spec.text))},
      {"model", HexDigits(ContentHash(context.model.self_contained_text))},
      {"length of sequences", absl::StrCat(max_seq)},
      {"computation of the loss", spec.host_loss ? "by the host" : "by plumb"},
      {"content of the weights", HexDigits(hasher.Finish())}};
  return RankError(AllAgree(ranks, facts));
}

absl::Status ShareTargets(Communicator* ranks, const absl::Status& status, const UnitRange& mine,
                          std::vector<int64_t>* targets) {
  // Doubles hold counts exactly: they are below 2^53.
  std::vector<double> own(targets->begin() + mine.begin, targets->begin() + mine.end);
  own.push_back(status.ok() ? 0 : 1);
  const absl::StatusOr<std::vector<double>> all = AllGather(ranks, own);
  if (!all.ok()) return RankError(all.status());
  PLUMB_CHECK(all->size() == targets->size() + static_cast<size_t>(ranks->size()),
              "the ranks send the expected counts");
  bool failed = false;
  auto next = all->begin();
  for (int rank = 0; rank < ranks->size(); ++rank) {
    const auto units = static_cast<int64_t>(targets->size());
    const UnitRange range = UnitsOfRank(units, rank, ranks->size());
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      (*targets)[static_cast<size_t>(unit)] = static_cast<int64_t>(*next++);
    }
    failed |= *next++ != 0;
  }
  return failed ? AllOk(ranks, status) : absl::OkStatus();
}

absl::Status ShareStep(Communicator* ranks, const BucketPlan& plan, int64_t units,
                       StepShare* share) {
  const auto units_of = [&](int rank) {
    return static_cast<size_t>(UnitsOfRank(units, rank, ranks->size()).size());
  };
  std::vector<double> mine = {share->status.ok() ? 0.0 : 1.0};
  share->losses.resize(units_of(ranks->rank()));  // after an error some are missing
  mine.insert(mine.end(), share->losses.begin(), share->losses.end());
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    if (bucket.owner != ranks->rank()) continue;
    for (size_t i = bucket.first; i < bucket.end; ++i) mine.push_back(share->squares[i]);
  }
  const absl::StatusOr<std::vector<double>> all = AllGather(ranks, mine);
  if (!all.ok()) return RankError(all.status());
  bool failed = false;
  share->losses.clear();
  size_t at = 0;
  for (int rank = 0; rank < ranks->size(); ++rank) {
    failed |= (*all)[at++] != 0;
    for (size_t i = 0; i < units_of(rank); ++i) share->losses.push_back((*all)[at++]);
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      if (bucket.owner != rank) continue;
      for (size_t i = bucket.first; i < bucket.end; ++i) share->squares[i] = (*all)[at++];
    }
  }
  PLUMB_CHECK(at == all->size(), "the ranks send the expected counts");
  return failed ? AllOk(ranks, share->status) : absl::OkStatus();
}

}  // namespace plumb
