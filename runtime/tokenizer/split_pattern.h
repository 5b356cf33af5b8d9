// SPDX-License-Identifier: Apache-2.0
// SplitPattern: a regular expression that cuts a text into pieces, by PCRE2. Immutable; the machine
// code that PCRE2 makes of it is shared by all matchers.
//
// Patterns are those of tokenizer.json (onig_syntax.h).
#ifndef PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
#define PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

class SplitPattern {
 public:
  // InvalidArgument, with the place in the pattern, for one that is wrong or not supported.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Compile(absl::string_view pattern);
  // A pattern that matches `text` and nothing else.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Literal(absl::string_view text);
  // A pattern that matches one grapheme (Unicode Standard Annex 29).
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Grapheme();
  ~SplitPattern();

  const std::string& text() const { return text_; }
  // True if it runs as machine code, which some systems do not allow.
  bool is_compiled() const { return is_compiled_; }
  // True if it can match an empty text, which cuts a text and removes nothing.
  bool matches_nothing() const { return matches_nothing_; }

 private:
  friend class SplitMatcher;
  struct Code;
  SplitPattern(absl::string_view text, std::unique_ptr<Code> code, std::unique_ptr<Code> fast);
  const Code& CodeFor(absl::string_view text) const;
  std::string text_;
  std::unique_ptr<Code> code_;
  // Code for texts without a new character; null if that is `code_`, too. Its classes have fewer
  // ranges, which makes published tokenizers faster by a seventh.
  std::unique_ptr<Code> fast_;
  bool is_compiled_ = false, matches_nothing_ = false;
};

// Matches one pattern in one thread. Thread-compatible.
class SplitMatcher {
 public:
  explicit SplitMatcher(std::shared_ptr<const SplitPattern> pattern);
  ~SplitMatcher();
  SplitMatcher(SplitMatcher&&) noexcept;

  // Finds the first match in `text`, or the next one after [*begin, *end), which Find returned
  // last. It may be empty, but not right after another match. Returns false if there is none.
  // Errors: ResourceExhausted if the budget has too few steps.
  // Requires: `text` is UTF-8.
  absl::StatusOr<bool> Find(absl::string_view text, bool first, WorkBudget* budget, size_t* begin,
                            size_t* end);

  // Matches without machine code, for tests.
  void UseInterpreter() { interprets_ = true; }

 private:
  struct State;
  int Match(absl::string_view text, size_t from);
  absl::StatusOr<bool> MatchWithin(absl::string_view text, size_t from, WorkBudget* budget);

  std::shared_ptr<const SplitPattern> pattern_;
  const SplitPattern::Code* code_;  // for the text of the last Find
  std::unique_ptr<State> state_;
  bool interprets_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
