// SPDX-License-Identifier: Apache-2.0
// SentencePiece's compiled rules of normalization (the field precompiled_charsmap, base64): a
// double-array trie (Aoe 1989, in the layout of darts-clone) from what is replaced to an offset in
// a block of texts, each of which ends in a zero byte. Immutable. Every index is checked: a trie
// that points outside of itself matches nothing there.
#ifndef PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_
#define PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/split_pattern.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

class PrecompiledMap {
 public:
  static absl::StatusOr<PrecompiledMap> Read(absl::string_view base64);

  // Appends `text` with its rules applied as the tokenizers library does it: a grapheme of fewer
  // than 6 bytes becomes what the shortest rule that it begins with says, the rest of it being
  // lost; in other graphemes, and where no rule fits, each character is looked up. Errors:
  // ResourceExhausted if the text becomes longer than the budget allows.
  absl::Status Append(absl::string_view text, WorkBudget* budget, std::string* out) const;

 private:
  // Appends the right side of the shortest rule that `text` begins with; false if there is none.
  bool AppendRule(absl::string_view text, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  std::shared_ptr<const SplitPattern> grapheme_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_
