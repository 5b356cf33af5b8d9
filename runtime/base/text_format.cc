// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/text_format.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace plumb {

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

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace plumb
