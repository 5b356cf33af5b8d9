// SplitPattern: a regular expression that cuts a text into pieces, by PCRE2. Immutable; the machine
// code that PCRE2 makes of it is shared by all matchers.
//
// Patterns are those of tokenizer.json, written for Oniguruma or Rust's engines: \s, \w and their
// complements are Unicode's White_Space and words there, which PCRE2 has under other names.
#ifndef PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
#define PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class SplitPattern {
 public:
  // InvalidArgument, with the place in the pattern, for what PCRE2 does not accept.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Compile(absl::string_view pattern);
  // A pattern that matches `text` and nothing else.
  static absl::StatusOr<std::shared_ptr<const SplitPattern>> Literal(absl::string_view text);
  ~SplitPattern();

  const std::string& text() const { return text_; }
  // Whether it runs as machine code: not where the system refuses memory that is written and run.
  bool is_compiled() const { return is_compiled_; }

 private:
  friend class SplitMatcher;
  struct Code;
  SplitPattern(std::string text, std::unique_ptr<Code> code);
  std::string text_;
  std::unique_ptr<Code> code_;
  bool is_compiled_ = false;
};

// What one thread matches one pattern with. Thread-compatible.
class SplitMatcher {
 public:
  explicit SplitMatcher(std::shared_ptr<const SplitPattern> pattern);
  ~SplitMatcher();
  SplitMatcher(SplitMatcher&&) noexcept;

  // The first match that is not empty and begins at or after `from`; false when there is none.
  // ResourceExhausted when the pattern takes more steps or memory than a pattern should.
  // REQUIRES: `text` is UTF-8, and `from` begins a character or is its end.
  absl::StatusOr<bool> Find(absl::string_view text, size_t from, size_t* begin, size_t* end);

  // For tests: as where there is no machine code.
  void UseInterpreter() { interprets_ = true; }

 private:
  struct State;
  int Match(absl::string_view text, size_t from);

  std::shared_ptr<const SplitPattern> pattern_;
  std::unique_ptr<State> state_;
  bool interprets_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SPLIT_PATTERN_H_
