// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pair_counts.h"

#include <algorithm>

namespace plumb {

void PairCounts::Add(absl::string_view piece, int64_t count) {
  const size_t begin = tokens_.size(), end = begin + piece.size();
  for (size_t i = begin; i < end; ++i) {
    tokens_.push_back(static_cast<unsigned char>(piece[i - begin]));
    previous_.push_back(i == begin ? kEnd : static_cast<uint32_t>(i - 1));
    next_.push_back(i + 1 == end ? kEnd : static_cast<uint32_t>(i + 1));
    pieces_.push_back(static_cast<uint32_t>(weights_.size()));
  }
  weights_.push_back(count);
}

void PairCounts::CountPairs() {
  for (uint32_t place = 0; place < tokens_.size(); ++place) {
    if (next_[place] == kEnd) continue;
    Occurrences& pair = pairs_[{tokens_[place], tokens_[next_[place]]}];
    pair.count += WeightAt(place);
    pair.places.push_back(place);
  }
  for (const auto& [pair, found] : pairs_) heap_.push_back({found.count, pair});
  std::make_heap(heap_.begin(), heap_.end());
}

absl::optional<std::pair<PairCounts::Pair, int64_t>> PairCounts::Top() {
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    const auto found = pairs_.find(top.pair);
    const int64_t count = found == pairs_.end() ? 0 : found->second.count;
    if (count == top.count) return std::make_pair(top.pair, count);
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    if (count > 0 && count < top.count) {
      heap_.push_back({count, top.pair});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }
  return absl::nullopt;
}

void PairCounts::Change(Pair pair, uint32_t place, int64_t by) {
  Occurrences& found = pairs_[pair];
  found.count += by;
  if (by < 0) return;
  found.places.push_back(place);
  if (found.places.size() == 1 || changed_.empty() || changed_.back() != pair) {
    changed_.push_back(pair);
  }
}

void PairCounts::Merge(Pair pair, int32_t token) {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return;
  const std::vector<uint32_t> places = std::move(found->second.places);
  changed_.clear();
  for (const uint32_t place : places) {
    const uint32_t second = next_[place];
    if (tokens_[place] != pair.first || second == kEnd || tokens_[second] != pair.second) continue;
    const int64_t weight = WeightAt(place);
    const uint32_t before = previous_[place], after = next_[second];
    if (before != kEnd) {
      Change({tokens_[before], pair.first}, before, -weight);
      Change({tokens_[before], token}, before, weight);
    }
    if (after != kEnd) {
      Change({pair.second, tokens_[after]}, second, -weight);
      Change({token, tokens_[after]}, place, weight);
      previous_[after] = place;
    }
    tokens_[place] = token;
    tokens_[second] = kGone;
    next_[place] = after;
  }
  pairs_.erase(pair);
  // Only the counts of pairs with the new token have increased.
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const Pair& grown : changed_) {
    const auto counted = pairs_.find(grown);
    if (counted == pairs_.end() || counted->second.count <= 0) continue;
    heap_.push_back({counted->second.count, grown});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

}  // namespace plumb
