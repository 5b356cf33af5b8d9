// SPDX-License-Identifier: Apache-2.0
// AddedTokens: the tokens of a tokenizer.json that are found in a text before it is cut, such as
// <|endoftext|>. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
#define PLUMB_RUNTIME_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/subword_model.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string pattern;  // what is found in a text: the content, normalized if `normalized`
  bool special = false;
  bool single_word = false;                        // not next to a letter or digit
  bool strips_left = false, strips_right = false;  // takes the spaces there with it
  bool normalized = true;                          // found in the normalized text
};

// Reads the list at `place`.
// Errors: InvalidArgument with the token and what is wrong with it.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json* json,
                                                        const std::string& place,
                                                        const SubwordModel& model,
                                                        const Normalizer& normalizer);

class AddedTokenFinder {
 public:
  // Finds those of `tokens` whose field `normalized` has the given value.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  struct Found {
    size_t begin = 0, end = 0;  // in the text, with the spaces that go with it
    const AddedToken* token = nullptr;
  };
  // Finds the first token at or after `from`, and of those that begin there the longest. Its token
  // is null if there is none.
  // Errors: ResourceExhausted if the budget has too few steps.
  absl::StatusOr<Found> Find(absl::string_view text, size_t from, WorkBudget* budget) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // to an index of tokens_
  std::array<bool, 256> begins_ = {};
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
