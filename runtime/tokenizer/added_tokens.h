// SPDX-License-Identifier: Apache-2.0
// Added tokens: tokens of a tokenizer.json that are found in a text before it is split, such as
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
  std::string pattern;  // text to find: the content, normalized if `normalized`
  bool special = false;
  bool single_word = false;                        // not matched next to a letter or digit
  bool strips_left = false, strips_right = false;  // includes the spaces on that side
  bool normalized = true;                          // matched in the normalized text
};

// Reads the list at `place`, which null leaves empty. Errors: kInvalidArgument with the token and
// its problem.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json* json,
                                                        const std::string& place,
                                                        const SubwordModel& model,
                                                        const Normalizer& normalizer);

class AddedTokenFinder {
 public:
  // Finds the tokens whose field `normalized` has the given value.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  struct Found {
    size_t begin = 0, end = 0;  // range in the text, including stripped spaces
    const AddedToken* token = nullptr;
  };
  // Returns the first token at or after `from`, the longest one if several begin there. Its token
  // is null if there is none.
  // Errors: kResourceExhausted if the budget has too few steps.
  absl::StatusOr<Found> Find(absl::string_view text, size_t from, WorkBudget* budget) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // maps patterns to indices of tokens_
  std::array<bool, 256> begins_ = {};
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
