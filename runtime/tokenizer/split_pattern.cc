#include "runtime/tokenizer/split_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

// Steps of one match: more than any pattern needs that does not try a text's parts in all
// combinations, and a second of time. A run of one character takes a step or two for each byte.
constexpr size_t kSteps = 10'000'000, kStepsPerByte = 16;
constexpr size_t kFirstStack = size_t{32} << 10, kMaxStack = size_t{8} << 20;
constexpr uint32_t kHeapKiB = 256 << 10;

constexpr absl::string_view kSpace = "\\p{White_Space}";
constexpr absl::string_view kNoSpace = "\\P{White_Space}";
constexpr absl::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";

// The pattern in PCRE2's words.
absl::StatusOr<std::string> Translate(absl::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[' && !in_class) {
        in_class = true;
      } else if (c == ']') {
        in_class = false;
      }
      out.push_back(c);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out.append(kSpace.data(), kSpace.size());
    } else if (escaped == 'S') {
      out.append(kNoSpace.data(), kNoSpace.size());
    } else if (escaped == 'w') {
      absl::StrAppend(&out, in_class ? "" : "[", kWord, in_class ? "" : "]");
    } else if (escaped == 'W' && !in_class) {
      absl::StrAppend(&out, "[^", kWord, "]");
    } else if (escaped == 'W') {
      return absl::InvalidArgumentError(absl::StrCat("pattern ", QuoteName(pattern), ", byte ", i,
                                                     ": \\W inside of [] is not supported"));
    } else {
      out.push_back('\\');
      out.push_back(escaped);
    }
  }
  return out;
}

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) {
    return absl::StrCat("error ", error);
  }
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(std::string text, std::unique_ptr<Code> code)
    : text_(std::move(text)), code_(std::move(code)) {
  is_compiled_ = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;

absl::StatusOr<std::shared_ptr<const SplitPattern>> SplitPattern::Compile(
    absl::string_view pattern) {
  const absl::StatusOr<std::string> translated = Translate(pattern);
  if (!translated.ok()) return translated.status();
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("pattern ", QuoteName(*translated), ", byte ",
                                                   offset, ": ", ErrorText(error)));
  }
  return std::shared_ptr<const SplitPattern>(
      new SplitPattern(std::string(pattern), std::move(code)));
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
  size_t limited_for = 0;  // bytes of text

  explicit State(const pcre2_code* code)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr)) {
    if (match == nullptr || context == nullptr) {
      Free();
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context, kSteps);
    pcre2_set_heap_limit(context, kHeapKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() { Free(); }

  void AllowFor(size_t bytes) {
    if (bytes <= limited_for) return;
    limited_for = bytes;
    const size_t steps = kSteps + kStepsPerByte * bytes;
    pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  }

 private:
  void Free() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

SplitMatcher::SplitMatcher(std::shared_ptr<const SplitPattern> pattern)
    : pattern_(std::move(pattern)),
      state_(std::make_unique<State>(pattern_->code_->code)),
      interprets_(!pattern_->is_compiled()) {}
SplitMatcher::~SplitMatcher() = default;
SplitMatcher::SplitMatcher(SplitMatcher&&) noexcept = default;

// Machine code has a stack of its own, which a pattern may outgrow; the interpreter has the heap.
int SplitMatcher::Match(absl::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = pattern_->code_->code;
  if (!interprets_) {
    const int result =
        pcre2_jit_match(code, subject, text.size(), from, 0, state_->match, state_->context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  }
  return pcre2_match(code, subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK,
                     state_->match, state_->context);
}

absl::StatusOr<bool> SplitMatcher::Find(absl::string_view text, size_t from, size_t* begin,
                                        size_t* end) {
  state_->AllowFor(text.size());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state_->match);
  while (from < text.size()) {
    const int result = Match(text, from);
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (result < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("pattern ", QuoteName(pattern_->text()),
                                                       ", matched at byte ", from, " of ",
                                                       text.size(), ": ", ErrorText(result)));
    }
    if (found[0] < found[1]) {
      *begin = found[0];
      *end = found[1];
      return true;
    }
    // An empty match, or one that \K made end before it begins.
    from = found[0] < from ? from : found[0];
    if (from < text.size()) NextCodePoint(text, &from);
  }
  return false;
}

}  // namespace plumb
