// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/text_metrics.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/utf8.h"

namespace plumb {

namespace {

// Widths of the characters 32 to 255 of WinAnsi in Helvetica, in 1/1000 of the font's size, from
// the font's metrics file. 0 is a code without a character.
constexpr uint16_t kHelveticaWidths[] = {
    278,  278, 355, 556, 556,  889, 667, 191, 333, 333, 389, 584,  278, 333,  278,  278,  556, 556,
    556,  556, 556, 556, 556,  556, 556, 556, 278, 278, 584, 584,  584, 556,  1015, 667,  667, 722,
    722,  667, 611, 778, 722,  278, 500, 667, 556, 833, 722, 778,  667, 778,  722,  667,  611, 722,
    667,  944, 667, 667, 611,  278, 278, 278, 469, 556, 333, 556,  556, 500,  556,  556,  278, 556,
    556,  222, 222, 500, 222,  833, 556, 556, 556, 556, 333, 500,  278, 556,  500,  722,  500, 500,
    500,  334, 260, 334, 584,  0,   556, 0,   222, 556, 333, 1000, 556, 556,  333,  1000, 667, 333,
    1000, 0,   611, 0,   0,    222, 222, 333, 333, 350, 556, 1000, 333, 1000, 500,  333,  944, 0,
    500,  667, 278, 333, 556,  556, 556, 556, 260, 556, 333, 737,  370, 556,  584,  333,  737, 333,
    400,  584, 333, 333, 333,  556, 537, 278, 333, 333, 365, 556,  834, 834,  834,  611,  667, 667,
    667,  667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278,  278, 278,  722,  722,  778, 778,
    778,  778, 778, 584, 778,  722, 722, 722, 722, 667, 667, 611,  556, 556,  556,  556,  556, 556,
    889,  500, 556, 556, 556,  556, 278, 278, 278, 278, 556, 556,  556, 556,  556,  556,  556, 584,
    611,  556, 556, 556, 556,  500, 556, 500};
static_assert(std::size(kHelveticaWidths) == 224, "one width for each code");

// Code points of the WinAnsi codes 0x80 to 0x9f. The others are their own code points.
constexpr uint32_t kWinAnsiCodePoints[] = {
    0x20ac, 0,      0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0,      0x17d,  0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0,      0x17e,  0x178};
static_assert(std::size(kWinAnsiCodePoints) == 32, "one code point for each code");

struct SymbolCharacter {
  uint32_t code_point;
  unsigned char code;
  uint16_t width;
};
// Characters from the Symbol font, in ascending order of code points.
constexpr SymbolCharacter kSymbolCharacters[] = {
    {0x391, 65, 722},   {0x392, 66, 667},   {0x393, 71, 603},   {0x394, 68, 612},
    {0x395, 69, 611},   {0x396, 90, 611},   {0x397, 72, 722},   {0x398, 81, 741},
    {0x399, 73, 333},   {0x39a, 75, 722},   {0x39b, 76, 686},   {0x39c, 77, 889},
    {0x39d, 78, 722},   {0x39e, 88, 645},   {0x39f, 79, 722},   {0x3a0, 80, 768},
    {0x3a1, 82, 556},   {0x3a3, 83, 592},   {0x3a4, 84, 611},   {0x3a5, 85, 690},
    {0x3a6, 70, 763},   {0x3a7, 67, 722},   {0x3a8, 89, 795},   {0x3a9, 87, 768},
    {0x3b1, 97, 631},   {0x3b2, 98, 549},   {0x3b3, 103, 411},  {0x3b4, 100, 494},
    {0x3b5, 101, 439},  {0x3b6, 122, 494},  {0x3b7, 104, 603},  {0x3b8, 113, 521},
    {0x3b9, 105, 329},  {0x3ba, 107, 549},  {0x3bb, 108, 549},  {0x3bc, 109, 576},
    {0x3bd, 110, 521},  {0x3be, 120, 493},  {0x3bf, 111, 549},  {0x3c0, 112, 549},
    {0x3c1, 114, 549},  {0x3c2, 86, 439},   {0x3c3, 115, 603},  {0x3c4, 116, 439},
    {0x3c5, 117, 576},  {0x3c6, 102, 521},  {0x3c7, 99, 549},   {0x3c8, 121, 686},
    {0x3c9, 119, 686},  {0x2190, 172, 987}, {0x2191, 173, 603}, {0x2192, 174, 987},
    {0x2193, 175, 603}, {0x2202, 182, 494}, {0x2207, 209, 713}, {0x2208, 206, 713},
    {0x2211, 229, 713}, {0x2212, 45, 549},  {0x221a, 214, 549}, {0x221d, 181, 713},
    {0x221e, 165, 713}, {0x2248, 187, 549}, {0x2260, 185, 549}, {0x2264, 163, 549},
    {0x2265, 179, 549}};

constexpr double kUnknownWidth = 1;  // width of a character without metrics, as wide as any is
constexpr char kEllipsis[] = "\u2026";

// Character as a PDF shows it.
struct PdfCharacter {
  char code = '?';
  bool is_symbol = false;
  bool is_known = true;
  double width = 0;  // in font sizes
};

PdfCharacter WinAnsi(uint32_t code) {
  return {static_cast<char>(code), false, true, kHelveticaWidths[code - 32] / 1000.0};
}

PdfCharacter FindCharacter(uint32_t code_point) {
  if ((code_point >= 32 && code_point < 127) || (code_point >= 160 && code_point < 256)) {
    return WinAnsi(code_point);
  }
  const auto* symbol = std::lower_bound(
      std::begin(kSymbolCharacters), std::end(kSymbolCharacters), code_point,
      [](const SymbolCharacter& item, uint32_t value) { return item.code_point < value; });
  if (symbol != std::end(kSymbolCharacters) && symbol->code_point == code_point) {
    return {static_cast<char>(symbol->code), true, true, symbol->width / 1000.0};
  }
  const auto* ansi = std::find(std::begin(kWinAnsiCodePoints), std::end(kWinAnsiCodePoints),
                               std::max(code_point, 128u));
  if (ansi != std::end(kWinAnsiCodePoints)) {
    return WinAnsi(static_cast<uint32_t>(128 + (ansi - std::begin(kWinAnsiCodePoints))));
  }
  PdfCharacter unknown = WinAnsi('?');
  unknown.is_known = false;
  return unknown;
}

// Calls visit(code point, offset of its first byte) for each character of valid UTF-8.
template <typename Visit>
void VisitCharacters(absl::string_view text, Visit visit) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    const absl::optional<uint32_t> code_point = NextCodePoint(text, &offset);
    if (!code_point.has_value()) ++offset;
    visit(code_point.value_or('?'), start);
  }
}

}  // namespace

std::string OneLine(absl::string_view text) {
  std::string line = PrintableText(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return line;
}

double TextWidth(absl::string_view text, double size) {
  double width = 0;
  VisitCharacters(text, [&](uint32_t code_point, size_t) {
    const PdfCharacter character = FindCharacter(code_point);
    width += character.is_known ? character.width : kUnknownWidth;
  });
  return width * size;
}

std::vector<PdfTextRun> PdfRuns(absl::string_view text) {
  std::vector<PdfTextRun> runs;
  VisitCharacters(text, [&](uint32_t code_point, size_t) {
    const PdfCharacter character = FindCharacter(code_point);
    if (runs.empty() || runs.back().is_symbol != character.is_symbol) {
      runs.emplace_back();
      runs.back().is_symbol = character.is_symbol;
    }
    runs.back().codes.push_back(character.code);
    runs.back().width += character.width;
  });
  return runs;
}

std::string ShortenText(absl::string_view text, double size, double max_width) {
  max_width += 1e-6;  // callers subtract from widths, which rounds
  if (TextWidth(text, size) <= max_width) return std::string(text);
  std::vector<size_t> starts;
  VisitCharacters(text, [&](uint32_t, size_t start) { starts.push_back(start); });
  for (size_t kept = starts.size() - 1; kept > 0; --kept) {
    const size_t head = (kept + 1) / 2, tail = kept / 2;
    std::string shortened = absl::StrCat(text.substr(0, starts[head]), kEllipsis);
    if (tail > 0) absl::StrAppend(&shortened, text.substr(starts[starts.size() - tail]));
    if (TextWidth(shortened, size) <= max_width) return shortened;
  }
  return TextWidth(kEllipsis, size) <= max_width ? kEllipsis : "";
}

std::vector<std::string> WrapText(absl::string_view text, double size, double max_width,
                                  size_t max_lines) {
  std::vector<std::string> lines;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!lines.empty()) {
      const std::string longer = absl::StrCat(lines.back(), " ", word);
      if (TextWidth(longer, size) <= max_width || lines.size() == max_lines) {
        lines.back() = longer;
        continue;
      }
    }
    lines.emplace_back(word);
  }
  for (std::string& line : lines) line = ShortenText(line, size, max_width);
  return lines;
}

}  // namespace plumb
