// SPDX-License-Identifier: Apache-2.0
// WordCache: a direct-mapped cache of the tokens of short words. It helps because a text consists
// mostly of a few thousand words. Thread-compatible.
#ifndef PLUMB_RUNTIME_TOKENIZER_WORD_CACHE_H_
#define PLUMB_RUNTIME_TOKENIZER_WORD_CACHE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 31, kMaxTokens = 7;

  // A slot is a cache line, and all slots together fit into the L2 cache.
  struct Slot {
    std::array<uint64_t, 4> key;  // the word's bytes, zeros, and the length in the last byte
    int32_t count;                // number of tokens; 0: empty
    int32_t tokens[kMaxTokens];
  };

  WordCache() : slots_(kSlots) {}

  // Returns the slot of `word`, whether it contains the word or not, and sets `*key` to its key.
  // Requires: word.size() in 1..kMaxBytes.
  Slot* Find(absl::string_view word, std::array<uint64_t, 4>* key) {
    unsigned char bytes[32] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[kMaxBytes] = static_cast<unsigned char>(word.size());
    std::memcpy(key->data(), bytes, sizeof(bytes));
    uint64_t hash = 0;
    for (const uint64_t part : *key) hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    return &slots_[static_cast<size_t>(hash >> (64 - kBits))];
  }

  static void Put(const std::array<uint64_t, 4>& key, absl::Span<const int32_t> tokens,
                  Slot* slot) {
    if (tokens.empty() || tokens.size() > kMaxTokens) return;
    slot->key = key;
    slot->count = static_cast<int32_t>(tokens.size());
    std::memcpy(slot->tokens, tokens.data(), tokens.size() * sizeof(int32_t));
  }

 private:
  static constexpr int kBits = 14;
  static constexpr size_t kSlots = size_t{1} << kBits;
  std::vector<Slot> slots_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_WORD_CACHE_H_
