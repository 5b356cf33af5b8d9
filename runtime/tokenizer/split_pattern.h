// SPDX-License-Identifier: Apache-2.0
// SplitPattern: a regular expression, in the syntax of tokenizer.json (onig_syntax.h), that splits
// a text into pieces with PCRE2. Immutable; all matchers share the machine code that PCRE2
// generates.
#ifndef PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
#define PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

class SplitPattern {
 public:
  // Errors: kInvalidArgument, with the offset in the pattern, for one that is wrong or unsupported.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Compile(absl::string_view pattern);
  // Returns a pattern that matches `text` and nothing else.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Literal(absl::string_view text);
  // Returns a pattern that matches one grapheme (Unicode Standard Annex 29).
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Grapheme();
  ~SplitPattern();

  const std::string& text() const { return text_; }
  // Returns true if it runs as machine code, which some systems do not allow.
  bool is_compiled() const { return is_compiled_; }
  // Returns true if it can match an empty text, which splits a text and removes nothing.
  bool matches_nothing() const { return matches_nothing_; }

 private:
  friend class SplitMatcher;
  struct Code;
  SplitPattern(absl::string_view text, std::unique_ptr<Code> code, std::unique_ptr<Code> fast);
  const Code& CodeFor(absl::string_view text) const;
  std::string text_;
  std::unique_ptr<Code> code_;
  // Code for texts without a new character; null if it is the same as `code_`. Its classes have
  // fewer ranges, which makes published tokenizers faster by a seventh.
  std::unique_ptr<Code> fast_;
  bool is_compiled_ = false, matches_nothing_ = false;
};

// Matches one pattern in one thread. Thread-compatible.
class SplitMatcher {
 public:
  explicit SplitMatcher(std::shared_ptr<const SplitPattern> pattern);
  ~SplitMatcher();
  SplitMatcher(SplitMatcher&&) noexcept;

  // Finds the first match in `text`, or, if not `first`, the next one after [*begin, *end), which
  // the previous call returned. A match may be empty, but not directly after another match. Returns
  // false if there is none.
  // Requires: `text` is UTF-8. Errors: kResourceExhausted if the budget has too few steps.
  absl::StatusOr<bool> Find(absl::string_view text, bool first, WorkBudget* budget, size_t* begin,
                            size_t* end);

  // Matches without machine code, for tests.
  void UseInterpreter() { interprets_ = true; }

 private:
  struct State;
  int Match(absl::string_view text, size_t from, uint32_t options);
  absl::StatusOr<bool> MatchWithin(absl::string_view text, size_t from, WorkBudget* budget);

  std::shared_ptr<const SplitPattern> pattern_;
  const SplitPattern::Code* code_;  // chosen by the text of the last Find
  std::unique_ptr<State> state_;
  bool interprets_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
