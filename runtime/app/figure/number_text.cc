// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/number_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace plumb {

namespace {

constexpr char kMinus[] = "\u2212";
constexpr double kMaxPlain = 1e6;   // larger values have an exponent
constexpr double kMinPlain = 1e-3;  // as have axes of smaller values
constexpr int kMaxDigits = 15;

// Returns the number without zeros at the end of its fraction.
std::string WithoutZeros(std::string number) {
  if (!absl::StrContains(number, '.')) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number == "-0" ? "0" : number;
}

// Returns a number like "-1.5e-07" as "−1.5e-7", with a sign of its own for negative numbers.
std::string Typeset(absl::string_view number) {
  std::string text;
  if (absl::ConsumePrefix(&number, "-")) text = kMinus;
  const size_t e = number.find('e');
  if (e == absl::string_view::npos) return absl::StrCat(text, number);
  return absl::StrCat(text, WithoutZeros(std::string(number.substr(0, e))), "e",
                      std::atoi(std::string(number.substr(e + 1)).c_str()));
}

// Returns the number of decimals, or digits after the point of an exponent's factor, that give
// every value, up to `tolerance` and the rounding of its computation.
int DigitsFor(const std::vector<double>& values, bool is_exponent, double tolerance) {
  for (int digits = 0; digits < kMaxDigits; ++digits) {
    if (std::all_of(values.begin(), values.end(), [&](double value) {
          const std::string text = is_exponent ? absl::StrFormat("%.*e", digits, value)
                                               : absl::StrFormat("%.*f", digits, value);
          return std::abs(std::strtod(text.c_str(), nullptr) - value) <=
                 std::max(tolerance, 1e-12 * std::abs(value));
        })) {
      return digits;
    }
  }
  return kMaxDigits;
}

}  // namespace

std::string CoordinateText(double value) { return WithoutZeros(absl::StrFormat("%.2f", value)); }

std::string SignificantText(double value) {
  if (value == 0) return "0";
  // Rounding can add a digit: 9.9996 is 10.00.
  const double rounded = std::strtod(absl::StrFormat("%.3e", value).c_str(), nullptr);
  const double magnitude = std::abs(rounded);
  if (magnitude < kMinPlain || magnitude >= 1e5) {
    return Typeset(absl::StrFormat("%.3e", value));
  }
  const int decimals = std::max(0, 3 - static_cast<int>(std::floor(std::log10(magnitude))));
  return Typeset(absl::StrFormat("%.*f", decimals, rounded));
}

std::vector<std::string> TickLabels(const std::vector<double>& values, bool is_uniform) {
  double largest = 0, smallest = kMaxPlain, gap = std::numeric_limits<double>::max();
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(values[i]));
    if (values[i] != 0) smallest = std::min(smallest, std::abs(values[i]));
    if (i > 0) gap = std::min(gap, std::abs(values[i] - values[i - 1]));
  }
  // A log axis has small and large values at once, a linear axis has one unit for all.
  const bool is_exponent =
      largest >= kMaxPlain || (is_uniform ? largest : smallest) < kMinPlain * (1 - 1e-9);
  const double tolerance = is_uniform && values.size() > 1 ? 1e-3 * std::min(gap, largest) : 0;
  const int digits = DigitsFor(values, is_exponent, tolerance);
  std::vector<std::string> labels;
  for (const double value : values) {
    if (is_exponent) {
      labels.push_back(value == 0 ? "0" : Typeset(absl::StrFormat("%.*e", digits, value)));
    } else {
      const std::string text = absl::StrFormat("%.*f", digits, value);
      labels.push_back(Typeset(is_uniform ? text : WithoutZeros(text)));
    }
  }
  return labels;
}

}  // namespace plumb
