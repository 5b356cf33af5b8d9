// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/onig_syntax.h"

#include <pcre2.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

// Categories of Oniguruma's \w. PCRE2's own \w differs between its versions.
constexpr absl::string_view kWordCategories[] = {"L", "M", "Nd", "Nl", "Pc"};
constexpr absl::string_view kOtherWords = "\\p{Alphabetic}\\xb2\\xb3\\xb9\\xbc-\\xbe";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns items of a character class for one general category. ASCII characters are listed, since
// PCRE2 tests them with a table, which is faster than their property.
std::string CategoryItems(absl::string_view name, CategoryFunction categories) {
  std::string items = name == "L" ? "A-Za-z" : name == "N" || name == "Nd" ? "0-9" : "";
  absl::StrAppend(&items, "\\p{", name, "}");
  if (categories == CategoryFunction::kPcre2) return items;
  ForEachNewCharacterRange(name, [&](uint32_t first, uint32_t last) {
    absl::StrAppendFormat(&items, "\\x{%x}-\\x{%x}", first, last);
  });
  return items;
}

std::string WordItems(CategoryFunction categories) {
  std::string items = "_";
  for (const absl::string_view name : kWordCategories) items += CategoryItems(name, categories);
  return absl::StrCat(items, kOtherWords);
}

class Translator {
 public:
  Translator(absl::string_view pattern, CategoryFunction categories)
      : pattern_(pattern), categories_(categories) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) PLUMB_RETURN_IF_ERROR(Item());
    return std::move(out_);
  }

 private:
  absl::Status Unsupported(size_t at, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("pattern ", QuoteName(pattern_), ", byte ", at,
                                                   ": ", what, " is not supported"));
  }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Next(absl::string_view text) const { return absl::StartsWith(pattern_.substr(at_), text); }

  absl::Status Item() {
    switch (Peek()) {
      case '\\':
        last_ = out_.size();
        return Escape(/*in_class=*/false);
      case '[':
        last_ = out_.size();
        return Class();
      case '(':
        return Open();
      case ')':
        if (!groups_.empty()) {
          last_ = groups_.back();
          groups_.pop_back();
        }
        break;
      case '{':
        if (Interval()) return absl::OkStatus();
        last_ = out_.size();
        out_ += "\\{";
        ++at_;
        return absl::OkStatus();
      case '*':
      case '+':
      case '?':
      case '|':
        break;
      default:
        last_ = out_.size();
        do {  // copies a whole character
          out_.push_back(pattern_[at_++]);
        } while (at_ < pattern_.size() && (pattern_[at_] & 0xC0) == 0x80);
        return absl::OkStatus();
    }
    out_.push_back(pattern_[at_++]);
    return absl::OkStatus();
  }

  absl::Status Open() {
    const size_t begin = at_;
    groups_.push_back(out_.size());
    if (Peek(1) == '*') return Unsupported(begin, "(*");
    if (Peek(1) != '?') {
      out_.push_back('(');
      ++at_;
      return absl::OkStatus();
    }
    for (const absl::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!Next(plain)) continue;
      absl::StrAppend(&out_, plain);
      at_ += plain.size();
      return absl::OkStatus();
    }
    out_ += "(?";
    at_ += 2;
    bool any = false;
    for (; Peek() == 'i' || Peek() == 'm' || Peek() == '-'; ++at_, any = true) {
      out_.push_back(Peek() == 'm' ? 's' : Peek());  // m lets a dot match a line break in Oniguruma
    }
    // An option such as (?i) applies to the rest of the enclosing group. Unless it is at the
    // group's beginning, Oniguruma also groups the following alternatives, which PCRE2 does not.
    const bool at_beginning = begin == 0 || pattern_[begin - 1] == '(';
    if (!any || (Peek() != ':' && (Peek() != ')' || !at_beginning))) {
      return Unsupported(begin, absl::StrCat("the group ", pattern_.substr(begin, 4), "..."));
    }
    if (Peek() == ')') groups_.pop_back();
    out_.push_back(pattern_[at_++]);
    return absl::OkStatus();
  }

  // Translates {n}, {n,}, {,m} and {n,m}; returns false for a brace that is a literal character. In
  // Oniguruma a following + repeats the interval, and a ? after {n} makes it optional.
  bool Interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && IsDigit(pattern_[end])) ++end;
      return pattern_.substr(begin, end - begin);
    };
    const absl::string_view low = digits();
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const absl::string_view high = comma ? digits() : "";
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && high.empty())) {
      return false;
    }
    at_ = end + 1;
    const bool again = Peek() == '+' || (Peek() == '?' && !comma);
    if (again) out_.insert(last_, "(?:");
    absl::StrAppend(&out_, "{", low.empty() ? "0" : low, comma ? "," : "", high, "}");
    if (again) out_.push_back(')');
    return true;
  }

  absl::Status Class() {
    const size_t begin = at_;
    out_.push_back(pattern_[at_++]);
    if (Peek() == '^') out_.push_back(pattern_[at_++]);
    if (Peek() == ']') {
      out_ += "\\]";
      ++at_;
    }
    while (at_ < pattern_.size() && Peek() != ']') {
      if (Peek() == '[') return Unsupported(at_, "a [ without \\ inside of []");
      if (Next("&&")) return Unsupported(at_, "&& inside of []");
      if (Peek() == '\\') {
        PLUMB_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else {
        out_.push_back(pattern_[at_++]);
      }
    }
    if (at_ == pattern_.size()) return Unsupported(begin, "a [ without its ]");
    out_.push_back(pattern_[at_++]);
    return absl::OkStatus();
  }

  // Appends a class of `items`, or only the items if a class is open already.
  absl::Status Items(const std::string& items, bool negated, bool in_class, size_t begin) {
    if (!in_class) {
      absl::StrAppend(&out_, negated ? "[^" : "[", items, "]");
    } else if (negated) {
      return Unsupported(begin, absl::StrCat(pattern_.substr(begin, 2), " inside of []"));
    } else {
      out_ += items;
    }
    return absl::OkStatus();
  }

  absl::Status Escape(bool in_class) {
    const size_t begin = at_;
    if (at_ + 1 == pattern_.size()) return Unsupported(begin, "a \\ at the end");
    const char c = Peek(1);
    at_ += 2;
    switch (c) {
      case 's':
        out_ += "\\p{White_Space}";
        return absl::OkStatus();
      case 'S':
        out_ += "\\P{White_Space}";
        return absl::OkStatus();
      case 'w':
      case 'W':
        return Items(WordItems(categories_), c == 'W', in_class, begin);
      case 'd':
      case 'D':
        return Items(CategoryItems("Nd", categories_), c == 'D', in_class, begin);
      case 'h':
      case 'H':
        return Items("0-9A-Fa-f", c == 'H', in_class, begin);
      case 'p':
      case 'P':
        return Property(begin, in_class);
      case 'x':
      case 'u':
        return Number(begin);
      case 'v':
        out_ += "\\x0b";
        return absl::OkStatus();
      case 'b':
      case 'B':
        if (in_class) break;
        Boundary(c == 'B');
        return absl::OkStatus();
      default:
        break;
    }
    const bool same =
        absl::StrContains(in_class ? "nrtfae" : "nrtfaeAzZ", absl::string_view(&c, 1));
    const bool reference = !in_class && c >= '1' && c <= '9' && !IsDigit(Peek());
    if ((IsAsciiLetter(c) || IsDigit(c)) && !same && !reference) {
      return Unsupported(begin,
                         absl::StrCat(pattern_.substr(begin, 2), in_class ? " inside of []" : ""));
    }
    out_.push_back('\\');
    out_.push_back(c);
    return absl::OkStatus();
  }

  // Appends a word boundary, \b or \B.
  void Boundary(bool negated) {
    const std::string word = absl::StrCat("[", WordItems(categories_), "]");
    absl::StrAppend(&out_, "(?:(?<=", word, ")(?", negated ? "=" : "!", word, ")|(?<!", word, ")(?",
                    negated ? "!" : "=", word, "))");
  }

  // Translates \xHH of ASCII, \x{H...} and \uHHHH.
  absl::Status Number(size_t begin) {
    const bool is_unicode = pattern_[begin + 1] == 'u';
    absl::string_view digits;
    if (!is_unicode && Peek() == '{') {
      const size_t end = pattern_.find('}', at_);
      if (end == absl::string_view::npos) return Unsupported(begin, "a \\x{ without its }");
      digits = pattern_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else {
      const size_t max = is_unicode ? 4 : 2;
      size_t n = 0;
      while (n < max && absl::ascii_isxdigit(static_cast<unsigned char>(Peek(n)))) ++n;
      digits = pattern_.substr(at_, n);
      at_ += n;
    }
    uint32_t value = 0;
    if (!absl::SimpleHexAtoi(digits, &value) ||
        (digits.size() <= 2 && value >= 0x80 && Raw(begin))) {
      return Unsupported(begin, absl::StrCat("the number ", pattern_.substr(begin, at_ - begin)));
    }
    absl::StrAppendFormat(&out_, "\\x{%x}", value);
    return absl::OkStatus();
  }
  // Returns true for \xHH, which in Oniguruma is a byte and not a character.
  bool Raw(size_t begin) const { return pattern_[begin + 1] == 'x' && pattern_[begin + 2] != '{'; }

  // Translates \p{Name}, \p{^Name} and \P{Name}.
  absl::Status Property(size_t begin, bool in_class) {
    bool negated = pattern_[begin + 1] == 'P';
    const size_t end = pattern_.find('}', at_);
    if (Peek() != '{' || end == absl::string_view::npos) {
      return Unsupported(begin, "a \\p without its {}");
    }
    absl::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (absl::StartsWith(name, "^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (name.empty() || FindInvalidUtf8(name) || absl::StrContains(name, "&") ||
        absl::StrContains(name, ":")) {
      return Unsupported(begin, absl::StrCat("the property ", QuoteName(name)));
    }
    if (IsGeneralCategory(name)) {
      return Items(CategoryItems(name, categories_), negated, in_class, begin);
    }
    // Oniguruma tests the script of a character, and not its script extensions.
    const std::string prefix = IsScript(name) ? "sc:" : "";
    absl::StrAppend(&out_, negated ? "\\P{" : "\\p{", prefix, name, "}");
    return absl::OkStatus();
  }

  // Returns true for categories whose new characters are known. C and Cn are not among them, since
  // new characters would have to be removed from these.
  static bool IsGeneralCategory(absl::string_view name) {
    return name.size() <= 2 && absl::StrContains("LMNPSZ", name.substr(0, 1));
  }
  static bool IsScript(absl::string_view name);

  absl::string_view pattern_;
  CategoryFunction categories_;
  size_t at_ = 0;
  std::string out_;
  std::vector<size_t> groups_;  // offsets in `out_` of the open groups
  size_t last_ = 0;             // offset in `out_` of the previous item, which may be repeated
};

// Returns true if PCRE2 knows the script. Oniguruma has the same names.
bool Translator::IsScript(absl::string_view name) {
  const std::string test = absl::StrCat("\\p{sc:", name, "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(test.data()), test.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

}  // namespace

absl::StatusOr<std::string> ToPcre2(absl::string_view pattern, CategoryFunction categories) {
  return Translator(pattern, categories).Run();
}

}  // namespace plumb
