// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/split_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/onig_syntax.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

// Steps of a match and bytes after its start that are free: more than a word takes. A match that
// needs more is repeated with more, and what was in vain is charged to the budget. PCRE2 counts no
// step for the characters of a repeated class, as in "a*b", so the bytes are limited, too.
constexpr uint32_t kFreeSteps = 1000;
constexpr size_t kFreeBytes = 256;
constexpr uint64_t kMore = 8, kMaxLimit = UINT32_MAX;
constexpr size_t kFirstStack = size_t{32} << 10, kMaxStack = size_t{8} << 20;
constexpr uint32_t kHeapKiB = 256 << 10;
constexpr absl::string_view kPart = "a pattern";

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) {
    return absl::StrCat("error ", error);
  }
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct SplitPattern::Code {
  static absl::StatusOr<std::unique_ptr<Code>> Compile(absl::string_view pattern,
                                                       const std::string& translated);
  pcre2_code* code = nullptr;
  bool has_jit = false;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(absl::string_view text, std::unique_ptr<Code> code,
                           std::unique_ptr<Code> fast)
    : text_(text), code_(std::move(code)), fast_(std::move(fast)) {
  is_compiled_ = code_->has_jit && (fast_ == nullptr || fast_->has_jit);
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  matches_nothing_ = matches_nothing != 0;
}

SplitPattern::~SplitPattern() = default;

// Compiles `translated` for PCRE2. Errors name `pattern`, from which it was translated.
absl::StatusOr<std::unique_ptr<SplitPattern::Code>> SplitPattern::Code::Compile(
    absl::string_view pattern, const std::string& translated) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto made = std::make_unique<Code>();
  made->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, nullptr);
  if (made->code == nullptr) {
    const bool same = translated == pattern;
    return absl::InvalidArgumentError(
        absl::StrCat("pattern ", QuoteName(pattern), same ? "" : ", for PCRE2 ",
                     same ? "" : QuoteName(translated), ", byte ", offset, ": ", ErrorText(error)));
  }
  made->has_jit = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return made;
}

absl::StatusOr<std::shared_ptr<const SplitPattern>> SplitPattern::Compile(
    absl::string_view pattern) {
  PLUMB_ASSIGN_OR_RETURN(const std::string all, ToPcre2(pattern, CategoryFunction::kUnicode16));
  PLUMB_ASSIGN_OR_RETURN(const std::string known, ToPcre2(pattern, CategoryFunction::kPcre2));
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Code> code, Code::Compile(pattern, all));
  std::unique_ptr<Code> fast;
  if (known != all) {
    PLUMB_ASSIGN_OR_RETURN(fast, Code::Compile(pattern, known));
  }
  return std::shared_ptr<const SplitPattern>(
      new SplitPattern(pattern, std::move(code), std::move(fast)));
}

absl::StatusOr<std::shared_ptr<const SplitPattern>> SplitPattern::Grapheme() {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Code> code, Code::Compile("\\X", "\\X"));
  return std::shared_ptr<const SplitPattern>(new SplitPattern("\\X", std::move(code), nullptr));
}

const SplitPattern::Code& SplitPattern::CodeFor(absl::string_view text) const {
  return fast_ == nullptr || HasNewCharacter(text) ? *code_ : *fast_;
}

absl::StatusOr<std::shared_ptr<const SplitPattern>> SplitPattern::Literal(absl::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      absl::StrAppendFormat(&pattern, "\\x%02x", byte);
    } else {
      pattern.push_back(c);
    }
  }
  return Compile(pattern);
}

struct SplitMatcher::State {
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  explicit State(const pcre2_code* code)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr)) {
    if (match == nullptr || context == nullptr) {
      Free();
      throw std::bad_alloc();
    }
    pcre2_set_heap_limit(context, kHeapKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() { Free(); }

 private:
  void Free() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

SplitMatcher::SplitMatcher(std::shared_ptr<const SplitPattern> pattern)
    : pattern_(std::move(pattern)),
      code_(pattern_->code_.get()),
      state_(std::make_unique<State>(pattern_->code_->code)),
      interprets_(!pattern_->is_compiled()) {}
SplitMatcher::~SplitMatcher() = default;
SplitMatcher::SplitMatcher(SplitMatcher&&) noexcept = default;

// Runs the machine code, whose stack a pattern may exceed, or the interpreter, which uses the heap.
int SplitMatcher::Match(absl::string_view text, size_t from, uint32_t options) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = code_->code;
  if (!interprets_) {
    const int result =
        pcre2_jit_match(code, subject, text.size(), from, options, state_->match, state_->context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  }
  return pcre2_match(code, subject, text.size(), from, options | PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK,
                     state_->match, state_->context);
}

// Matches with few steps in a few bytes, at all starts in these. If a start needs more, continues
// there, one start at a time, with more and more as long as the budget allows.
absl::StatusOr<bool> SplitMatcher::MatchWithin(absl::string_view text, size_t from,
                                               WorkBudget* budget) {
  uint64_t steps = kFreeSteps;
  size_t bytes = kFreeBytes;
  size_t alone_before = 0;  // starts before are tried alone: one of them needs more steps
  while (true) {
    size_t end = std::min(text.size(), from + bytes);
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;  // inside a character
    const bool is_all = end == text.size();
    const bool is_alone = from < alone_before || steps > kFreeSteps || bytes > kFreeBytes;
    pcre2_set_match_limit(state_->context, static_cast<uint32_t>(steps));
    pcre2_set_offset_limit(state_->context, is_alone ? from : is_all ? PCRE2_UNSET : end - 1);
    // A match that reads the character after the last one is partial.
    const int result = Match(text.substr(0, end), from, is_all ? 0 : PCRE2_PARTIAL_HARD);
    if (result >= 0) return true;
    if (result == PCRE2_ERROR_NOMATCH) {
      if (from == text.size() || (is_all && !is_alone)) return false;
      if (!is_alone) {
        from = end;
      } else if (!NextCodePoint(text, &from)) {
        return false;
      }
      steps = kFreeSteps;
      bytes = kFreeBytes;
    } else if (result == PCRE2_ERROR_PARTIAL) {
      PLUMB_RETURN_IF_ERROR(budget->Charge(bytes, kPart));
      from = pcre2_get_ovector_pointer(state_->match)[0];
      bytes *= kMore;
    } else if (result == PCRE2_ERROR_MATCHLIMIT) {
      PLUMB_RETURN_IF_ERROR(budget->Charge(steps, kPart));
      const uint64_t more = std::min({steps * kMore, budget->left(), kMaxLimit});
      if (more <= steps) {
        return budget->Exhausted(absl::StrCat("the pattern ", QuoteName(pattern_->text()),
                                              ", matched at byte ", from, " of ", text.size()));
      }
      if (!is_alone) alone_before = end;
      steps = more;
    } else if (result == PCRE2_ERROR_NOMEMORY) {
      throw std::bad_alloc();
    } else {
      return budget->Exhausted(absl::StrCat("the pattern ", QuoteName(pattern_->text()),
                                            ", matched at byte ", from, " of ", text.size(), ": ",
                                            ErrorText(result)));
    }
  }
}

absl::StatusOr<bool> SplitMatcher::Find(absl::string_view text, bool first, WorkBudget* budget,
                                        size_t* begin, size_t* end) {
  if (first) code_ = &pattern_->CodeFor(text);
  const size_t from = first ? 0 : *end;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state_->match);
  for (size_t at = from; at < text.size() || (at == text.size() && pattern_->matches_nothing());) {
    PLUMB_ASSIGN_OR_RETURN(const bool matches, MatchWithin(text, at, budget));
    if (!matches) return false;
    if (found[0] < found[1] || (found[0] == found[1] && (first || found[1] != from))) {
      *begin = found[0];
      *end = found[1];
      return true;
    }
    // An empty match directly after the last match does not count.
    if (at == text.size() || !NextCodePoint(text, &at)) return false;
  }
  return false;
}

}  // namespace plumb
