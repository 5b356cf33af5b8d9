// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/unicode.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

struct Range {
  uint32_t first, last;
  uint8_t value;
};
struct Decomposition {
  uint32_t character;
  uint16_t at;  // index in kDecomposed
  uint8_t size;
  uint8_t compatible;  // 1: only for NFKC and NFKD
};
struct Composition {
  uint32_t first, second, result;
};
struct Mapping {
  uint32_t from, to;
};
struct NewRange {
  uint32_t first, last;
  char category[3];
};

#include "runtime/tokenizer/unicode_tables.inc"

// Bits of kCategories.
enum Category : uint8_t {
  kMark = 1,
  kNonspacingMark = 2,
  kPunctuation = 4,
  kControl = 8,
  kNumber = 16,
  kWord = 32
};

template <size_t n>
uint8_t FindIn(const Range (&ranges)[n], uint32_t c) {
  const Range* found = std::lower_bound(
      ranges, ranges + n, c, [](const Range& range, uint32_t value) { return range.last < value; });
  return found != ranges + n && found->first <= c ? found->value : 0;
}

// Hangul syllables are arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

void AppendDecomposed(uint32_t c, bool compatible, std::vector<uint32_t>* out) {
  if (c < 0xA0) {
    out->push_back(c);
    return;
  }
  if (c >= kS && c < kS + kSCount) {
    const uint32_t s = c - kS, t = s % kTCount;
    out->push_back(kL + s / (kVCount * kTCount));
    out->push_back(kV + s / kTCount % kVCount);
    if (t > 0) out->push_back(kT + t);
    return;
  }
  // If a character has both decompositions, the canonical one is first.
  const Decomposition* found = std::lower_bound(
      std::begin(kDecompositions), std::end(kDecompositions), c,
      [](const Decomposition& entry, uint32_t value) { return entry.character < value; });
  const Decomposition* chosen = nullptr;
  for (; found != std::end(kDecompositions) && found->character == c; ++found) {
    if (compatible || !found->compatible) chosen = found;
  }
  if (chosen == nullptr) {
    out->push_back(c);
  } else {
    out->insert(out->end(), kDecomposed + chosen->at, kDecomposed + chosen->at + chosen->size);
  }
}

// Sorts runs of marks by their combining classes.
void Reorder(std::vector<uint32_t>* text) {
  const auto is_starter = [](uint32_t c) { return FindIn(kCombiningClasses, c) == 0; };
  for (auto at = text->begin(); at != text->end();) {
    at = std::find_if_not(at, text->end(), is_starter);
    const auto end = std::find_if(at, text->end(), is_starter);
    std::stable_sort(at, end, [](uint32_t a, uint32_t b) {
      return FindIn(kCombiningClasses, a) < FindIn(kCombiningClasses, b);
    });
    at = end;
  }
}

// Returns the composition of two characters; 0 if there is none.
uint32_t Composed(uint32_t a, uint32_t b) {
  if (a >= kL && a < kL + kLCount && b >= kV && b < kV + kVCount) {
    return kS + ((a - kL) * kVCount + (b - kV)) * kTCount;
  }
  if (a >= kS && a < kS + kSCount && (a - kS) % kTCount == 0 && b > kT && b < kT + kTCount) {
    return a + (b - kT);
  }
  const Composition* found =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::make_pair(a, b),
                       [](const Composition& entry, const std::pair<uint32_t, uint32_t>& pair) {
                         return std::make_pair(entry.first, entry.second) < pair;
                       });
  const bool is_it = found != std::end(kCompositions) && found->first == a && found->second == b;
  return is_it ? found->result : 0;
}

// Composes each character with the last starter, unless one between them blocks it.
void Compose(std::vector<uint32_t>* text) {
  size_t size = 0;
  size_t starter = text->size();  // text->size(): no starter yet
  uint8_t last_class = 0;
  for (const uint32_t c : *text) {
    const uint8_t combining = FindIn(kCombiningClasses, c);
    const bool adjacent = starter + 1 == size;
    const bool may_join =
        starter < text->size() && (adjacent || (last_class != 0 && last_class < combining));
    const uint32_t joined = may_join ? Composed((*text)[starter], c) : 0;
    if (joined != 0) {
      (*text)[starter] = joined;
      continue;
    }
    if (combining == 0) starter = size;
    last_class = combining;
    (*text)[size++] = c;
  }
  text->resize(size);
}

// Returns the pages of 256 characters that have a new one. Few texts have such pages.
std::bitset<0x1100> NewPages() {
  std::bitset<0x1100> pages;
  for (const NewRange& range : kNewCharacters) {
    for (uint32_t page = range.first >> 8; page <= range.last >> 8; ++page) pages.set(page);
  }
  return pages;
}

bool IsNewCharacter(uint32_t c) {
  static const std::bitset<0x1100> pages = NewPages();
  if (!pages[c >> 8]) return false;
  const NewRange* const after =
      std::upper_bound(std::begin(kNewCharacters), std::end(kNewCharacters), c,
                       [](uint32_t value, const NewRange& range) { return value < range.first; });
  return after != std::begin(kNewCharacters) && c <= std::prev(after)->last;
}

}  // namespace

void AppendNormalForm(absl::string_view text, NormalForm form, std::string* out) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  std::vector<uint32_t> characters;
  // Lines are independent, since no character combines across a line break.
  for (size_t at = 0; at < text.size();) {
    const size_t newline = text.find('\n', at);
    const size_t end = newline == absl::string_view::npos ? text.size() : newline + 1;
    const absl::string_view line = text.substr(at, end - at);
    at = end;
    if (IsAscii(line)) {
      out->append(line.data(), line.size());
      continue;
    }
    characters.clear();
    for (size_t offset = 0; offset < line.size();) {
      const absl::optional<uint32_t> c = NextCodePoint(line, &offset);
      AppendDecomposed(c.value_or(0xFFFD), compatible, &characters);
    }
    Reorder(&characters);
    if (composed) Compose(&characters);
    for (const uint32_t c : characters) AppendUtf8(c, out);
  }
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void AppendLowerCase(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  if (c == 0x130) {  // the only mapping to two characters: i and a dot above
    AppendUtf8('i', out);
    AppendUtf8(0x307, out);
    return;
  }
  const Mapping* found =
      std::lower_bound(std::begin(kLowerCase), std::end(kLowerCase), c,
                       [](const Mapping& entry, uint32_t value) { return entry.from < value; });
  AppendUtf8(found != std::end(kLowerCase) && found->from == c ? found->to : c, out);
}

bool IsMark(uint32_t c) { return (FindIn(kCategories, c) & kMark) != 0; }
bool IsNonspacingMark(uint32_t c) { return (FindIn(kCategories, c) & kNonspacingMark) != 0; }
bool IsPunctuation(uint32_t c) { return (FindIn(kCategories, c) & kPunctuation) != 0; }
bool IsControl(uint32_t c) { return (FindIn(kCategories, c) & kControl) != 0; }
bool IsNumber(uint32_t c) { return (FindIn(kCategories, c) & kNumber) != 0; }

bool IsWhiteSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(uint32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  return (FindIn(kCategories, c) & kWord) != 0;
}

void ForEachNewCharacterRange(absl::string_view category,
                              absl::FunctionRef<void(uint32_t first, uint32_t last)> visit) {
  for (const NewRange& range : kNewCharacters) {
    if (absl::StartsWith(range.category, category)) visit(range.first, range.last);
  }
}

bool HasNewCharacter(absl::string_view text) {
  // All new characters have three or four bytes.
  constexpr unsigned char kFirstOfThree = 0xE0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < kFirstOfThree) {
      ++at;
    } else if (IsNewCharacter(*NextCodePoint(text, &at))) {
      return true;
    }
  }
  return false;
}

}  // namespace plumb
