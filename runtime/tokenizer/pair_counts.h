// SPDX-License-Identifier: Apache-2.0
// PairCounts: pieces as lists of tokens and the counts of adjacent pairs in them, which are updated
// as pairs are merged. The data structure of BpeTrainer. Thread-compatible.
#ifndef PLUMB_RUNTIME_TOKENIZER_PAIR_COUNTS_H_
#define PLUMB_RUNTIME_TOKENIZER_PAIR_COUNTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

class PairCounts {
 public:
  using Pair = std::pair<int32_t, int32_t>;

  // Adds a piece of bytes, which are tokens 0 to 255, that occurs `count` times.
  // Requires: fewer than 2^32 bytes in total.
  void Add(absl::string_view piece, int64_t count);
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Counts all pairs. Requires: all pieces were added.
  void CountPairs();

  // Returns the most frequent pair (the lowest of equally frequent ones) and its count; nullopt if
  // no pair is left.
  absl::optional<std::pair<Pair, int64_t>> Top();
  // Replaces all occurrences of the pair by `token`, in each piece from the left.
  void Merge(Pair pair, int32_t token);

 private:
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> places;  // places of the first token; some may be outdated
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    // Orders candidates for std::push_heap, which keeps the greatest on top.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  static constexpr uint32_t kEnd = ~uint32_t{0};
  static constexpr int32_t kGone = -1;

  void Change(Pair pair, uint32_t place, int64_t by);
  int64_t WeightAt(uint32_t place) const { return weights_[pieces_[place]]; }

  // For each place: the token, the previous and the next place in its piece, and the piece.
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> previous_, next_, pieces_;
  std::vector<int64_t> weights_;  // count of each piece
  absl::flat_hash_map<Pair, Occurrences> pairs_;
  std::vector<Candidate> heap_;  // counts may be outdated
  std::vector<Pair> changed_;    // pairs whose counts the current merge increases
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PAIR_COUNTS_H_
