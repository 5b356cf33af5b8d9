// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/text_format.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace plumb {
namespace {

void AppendLines(absl::string_view mark, absl::Span<const absl::string_view> lines, size_t max,
                 std::string* text) {
  for (size_t i = 0; i < std::min(lines.size(), max); ++i) {
    absl::StrAppend(text, "\n  ", mark, " ", lines[i]);
  }
  if (lines.size() > max) absl::StrAppend(text, "\n  ", mark, " … ", lines.size() - max, " more");
}

}  // namespace

std::string WithCommas(int64_t n) {
  std::string digits = absl::StrCat(n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string Count(int64_t n, absl::string_view noun) {
  return absl::StrCat(WithCommas(n), " ", noun, n == 1 ? "" : "s");
}

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return Count(bytes, "byte");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  if (seconds < 60) return absl::StrFormat("%.*f s", seconds < 10 ? 2 : 1, seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Rate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "-";
  if (per_second < 1e3) return absl::StrFormat("%.0f", per_second);
  if (per_second < 1e6) return absl::StrFormat("%.1fk", per_second / 1e3);
  return absl::StrFormat("%.1fM", per_second / 1e6);
}

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view alignment, absl::string_view indent) {
  const auto columns_of = [](const std::string& text) {  // counts characters, not bytes
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  };
  std::vector<std::ptrdiff_t> widths(alignment.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    absl::StrAppend(&text, indent);
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_left = alignment[i] == 'l', is_last = i + 1 == alignment.size();
      const std::string space(static_cast<size_t>(widths[i] - columns_of(row[i])), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", is_left ? row[i] : space,
                      !is_left  ? row[i]
                      : is_last ? ""
                                : space);
    }
    text.push_back('\n');
  }
  return text;
}

std::string CsvText(absl::string_view text) {
  std::string cell(text);
  double number;
  const bool is_formula = text.find_first_of("=+-@\t\r\n") == 0 && !absl::SimpleAtod(text, &number);
  if (is_formula) cell.insert(0, "'");
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  return absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
}

std::string CsvNumber(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? absl::StrFormat("%.9g", *value) : "";
}

std::string RangesText(const std::vector<int64_t>& numbers, absl::string_view separator) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    absl::StrAppend(&text, i > 0 ? separator : "", numbers[i],
                    end - i > 1 ? absl::StrCat("..", numbers[end - 1]) : "");
    i = end;
  }
  return text;
}

std::string ShortestNumber(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double read = 0;
    if (absl::SimpleAtod(text, &read) && read == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string TextDifference(absl::string_view then, absl::string_view now, size_t max) {
  if (then == now) return "";
  const std::vector<absl::string_view> before = absl::StrSplit(then, '\n');
  const std::vector<absl::string_view> after = absl::StrSplit(now, '\n');
  const size_t shorter = std::min(before.size(), after.size());
  size_t first = 0, last = 0;  // numbers of equal lines at the beginning and at the end
  while (first < shorter && before[first] == after[first]) ++first;
  while (last < shorter - first &&
         before[before.size() - 1 - last] == after[after.size() - 1 - last]) {
    ++last;
  }
  const auto middle = [first, last](const std::vector<absl::string_view>& lines) {
    return absl::MakeConstSpan(lines).subspan(first, lines.size() - first - last);
  };
  std::string text;
  AppendLines("-", middle(before), max, &text);
  AppendLines("+", middle(after), max, &text);
  return text;
}

}  // namespace plumb
