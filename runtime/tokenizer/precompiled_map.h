// SentencePiece's compiled rules of normalization (the field precompiled_charsmap, base64): a
// double-array trie (Aoe 1989, in the layout of darts-clone) from what is replaced to an offset in
// a block of texts, each of which ends in a zero byte. Immutable. Every index is checked: a trie
// that points outside of itself matches nothing there.
#ifndef PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_
#define PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class PrecompiledMap {
 public:
  static absl::StatusOr<PrecompiledMap> Read(absl::string_view base64);

  // Appends `text` with the longest rule that fits applied at each character.
  void Append(absl::string_view text, std::string* out) const;

 private:
  // The length of the longest rule's left side that `text` begins with, 0 for none.
  size_t Longest(absl::string_view text, uint32_t* offset) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_
