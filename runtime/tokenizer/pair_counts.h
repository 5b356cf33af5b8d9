// SPDX-License-Identifier: Apache-2.0
// PairCounts: pieces as lists of tokens, and how often each pair of tokens is beside each other in
// them, kept up to date as pairs are merged. What BpeTrainer works on. Thread-compatible.
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

  // A piece of bytes, which are tokens 0 to 255, that occurs `count` times.
  // REQUIRES: fewer than 2^32 bytes in all.
  void Add(absl::string_view piece, int64_t count);
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // After all pieces were added.
  void CountPairs();

  // The most frequent pair, and its count; of equals the lowest. nullopt when none is left.
  absl::optional<std::pair<Pair, int64_t>> Top();
  // Makes the pair one token wherever it is, from the left.
  void Merge(Pair pair, int32_t token);

 private:
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> places;  // of the first token; some may be gone since
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    // std::push_heap has the greatest on top.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  static constexpr uint32_t kEnd = ~uint32_t{0};
  static constexpr int32_t kGone = -1;

  void Change(Pair pair, uint32_t place, int64_t by);
  int64_t WeightAt(uint32_t place) const { return weights_[pieces_[place]]; }

  // By place: the token, and the places before and after it in its piece.
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> previous_, next_, pieces_;
  std::vector<int64_t> weights_;  // by piece
  absl::flat_hash_map<Pair, Occurrences> pairs_;
  std::vector<Candidate> heap_;  // counts may be out of date
  std::vector<Pair> changed_;    // by the merge at hand, upwards
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PAIR_COUNTS_H_
