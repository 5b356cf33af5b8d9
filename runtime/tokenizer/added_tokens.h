// AddedTokens: the tokens of a tokenizer.json that are found in a text before anything else is done
// to it, such as <|endoftext|>. Immutable, thread-safe.
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

namespace plumb {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;                        // not beside a letter or digit
  bool strips_left = false, strips_right = false;  // takes the spaces there with it
  bool normalized = true;                          // found in the normalized text
};

// Reads the list at `place`. InvalidArgument says which token is wrong and how.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json* json,
                                                        const std::string& place, size_t pieces);

class AddedTokenFinder {
 public:
  // Finds those of `tokens` for which `normalized` is so.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  struct Found {
    size_t begin = 0, end = 0;  // in the text, with the spaces that go with it
    const AddedToken* token = nullptr;
  };
  // The first at or after `from`, the longest of those that begin there; its token is null when
  // there is none.
  Found Find(absl::string_view text, size_t from) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // to an index of tokens_
  std::array<bool, 256> begins_ = {};
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_ADDED_TOKENS_H_
