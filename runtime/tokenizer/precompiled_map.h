// SPDX-License-Identifier: Apache-2.0
// PrecompiledMap: SentencePiece's compiled normalization rules (the field precompiled_charsmap,
// base64). A double-array trie (Aoe 1989, in the layout of darts-clone) maps the text to replace to
// an offset in a block of zero-terminated replacements. Immutable. Every index is checked: a trie
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

  // Appends `text` with the rules applied as the tokenizers library does it: a grapheme shorter
  // than 6 bytes is replaced by the shortest rule that is a prefix of it, and the rest of it is
  // lost. In other graphemes, and if no rule matches, each character is looked up. Errors:
  // kResourceExhausted if the text becomes longer than the budget allows.
  absl::Status Append(absl::string_view text, WorkBudget* budget, std::string* out) const;

 private:
  // Appends the replacement by the shortest rule that is a prefix of `text`; false if none is.
  bool AppendRule(absl::string_view text, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  std::shared_ptr<const SplitPattern> grapheme_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRECOMPILED_MAP_H_
