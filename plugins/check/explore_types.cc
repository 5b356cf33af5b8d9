// X1 and X4: an element type against a wider one.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

uint32_t WidestType(const plumb_norm_plugin& norm) {
  return (norm.dtypes & PLUMB_F64) != 0 ? PLUMB_F64 : PLUMB_F32;
}

// The operands, each moved by its f32 rounding: what the results then move by, rounding may do.
// Neighbours of short rows in opposite directions, since a common one is no move of what is
// centered.
Operands Moved(const Operands& operands, int64_t dim, uint64_t seed) {
  std::mt19937_64 random(seed);
  Operands moved = operands;
  const auto move = [&random, dim](Values* values) {
    double sign = 1;
    for (size_t i = 0; i < values->size(); ++i) {
      const bool opposite = dim <= 64 && i % 2 == 1;
      sign = opposite ? -sign : (random() & 1) != 0 ? 1 : -1;
      (*values)[i] *= 1 + std::ldexp(sign, -23);
    }
  };
  move(&moved.x);
  move(&moved.dy);
  for (Values& values : moved.params) move(&values);
  return moved;
}

struct Allowance {
  double of_row;      // of the largest of the row of the reference
  double of_moved;    // of the largest move of the row
  double of_element;  // of the element and of what it was added to: its own rounding
  double added;
};

// "" where `got` is within the tolerance of `must`; rows that are not finite say nothing.
std::string Compare(const char* name, const Values& got, const Values& must, const Values& moved,
                    int64_t width, const Allowance& t, const Values* terms = nullptr) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  for (size_t start = 0; start < must.size(); start += w) {
    double largest = 0, most_moved = 0;
    for (size_t i = start; i < start + w; ++i) {
      largest = std::max(largest, std::abs(must[i]));
      most_moved = std::max(most_moved, std::abs(moved[i] - must[i]));
      if (!std::isfinite(must[i]) || !std::isfinite(moved[i])) largest = HUGE_VAL;
    }
    if (largest > 1e18 || most_moved > 0.01 * largest) continue;
    for (size_t i = start; i < start + w; ++i) {
      const double term = terms == nullptr ? 0 : (*terms)[start / w];
      const double allowed = t.of_row * largest + term + t.of_moved * most_moved +
                             t.of_element * (std::abs(must[i]) + t.added) + 1e-30;
      if (std::abs(got[i] - must[i]) <= allowed) continue;
      return absl::StrFormat("%s is %.9g, must be %.9g (+- %.2g)",
                             PlaceInTensor(name, i, must.size(), width), got[i], must[i], allowed);
    }
  }
  return "";
}

// Beside a slope of 1: what 1 - tanh(x)^2 keeps of its terms where x is large.
constexpr double kSaturated = 0.06;

// What the rounding of a term may do to dx, row by row, where terms cancel: a term is about dy
// times what y is of x.
Values RoundingOfTerms(const Operands& operands, const Values& y, int64_t dim, double relative) {
  const size_t w = static_cast<size_t>(dim);
  double most_param = 1;
  for (const Values& values : operands.params) {
    most_param = std::max(most_param, LargestMagnitude(values));
  }
  Values terms;
  for (size_t start = 0; start < y.size(); start += w) {
    double most_y = 0, most_x = 0, most_dy = 0, low = HUGE_VAL, high = -HUGE_VAL;
    for (size_t i = start; i < start + w; ++i) {
      most_y = std::max(most_y, std::abs(y[i]));
      most_x = std::max(most_x, std::abs(operands.x[i]));
      most_dy = std::max(most_dy, std::abs(operands.dy[i]));
      low = std::min(low, operands.x[i]);
      high = std::max(high, operands.x[i]);
    }
    if (high > low) most_x = std::min(most_x, high - low);
    terms.push_back(most_x > 0 ? relative * most_dy * most_y *
                                     std::max(1 / most_x, kSaturated * most_param)
                               : 0);
  }
  return terms;
}

// The same where columns are normalized over rows: for all rows what the narrowest column needs.
Values RoundingOfColumns(const Operands& operands, const Values& y, int64_t dim, double relative) {
  const size_t w = static_cast<size_t>(dim);
  double narrowest = HUGE_VAL, most_y = 0, most_dy = 0;
  for (size_t column = 0; column < w; ++column) {
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (size_t i = column; i < y.size(); i += w) {
      low = std::min(low, operands.x[i]);
      high = std::max(high, operands.x[i]);
      most_y = std::max(most_y, std::abs(y[i]));
      most_dy = std::max(most_dy, std::abs(operands.dy[i]));
    }
    if (high > low) narrowest = std::min(narrowest, high - low);
  }
  return Values(y.size() / w, relative * most_dy * most_y / narrowest);
}

std::optional<std::string> AgreesWithWidest(const plumb_norm_plugin& norm, const Point& point) {
  // Of a column of few rows two may be so near that f32 cannot tell their spread.
  if ((norm.flags & PLUMB_NORM_CROSS_ROW) != 0 && point[kRows] < 8) return std::nullopt;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = TypeOf(point), widest = WidestType(norm);
  const Operands operands = OperandsAt(*instance, point);
  const PointResult got = RunAt(*instance, point, type, operands);
  if (!got.problem.empty()) return got.problem;
  const Outcome must = RunAt(*instance, Plain(point), widest, operands).outcome;
  const Outcome moved = RunAt(*instance, Plain(point), widest,
                              Moved(operands, point[kDim], static_cast<uint64_t>(point[kSeed])))
                            .outcome;
  const bool wide = type == PLUMB_F64;
  // The moves are those of f32, which f64 needs none of.
  const Allowance y = {wide ? 1e-10 : 3e-5, wide ? 0.01 : 40, Epsilon(type), 0};
  std::string text = Compare("y", got.outcome.y, must.y, moved.y, point[kDim], y);
  if (text.empty() && point[kEvaluation] == 0) {
    Allowance dx = y;
    dx.added = point[kAdd] != 0 ? 1 : 0;
    // y itself was rounded.
    if (type == PLUMB_BF16 && (instance->layout().backward_needs & PLUMB_BWD_Y)) dx.of_row = 0.05;
    const bool columns = (norm.flags & PLUMB_NORM_CROSS_ROW) != 0;
    const Values terms = (columns ? RoundingOfColumns : RoundingOfTerms)(
        operands, must.y, point[kDim], wide ? 1e-13 : 1.2e-5);
    text = Compare("dx", got.outcome.dx, must.dx, moved.dx, point[kDim], dx, &terms);
    Allowance sums = dx;
    sums.of_row = std::max(dx.of_row, wide ? 1e-10 : 2e-4);
    sums.of_element = 0;
    double most = 1;
    for (const Values& values : operands.params) most = std::max(most, LargestMagnitude(values));
    const Values of_sums = {(wide ? 1e-14 : 2.5e-7) * most * LargestMagnitude(operands.x) *
                            LargestMagnitude(operands.dy)};
    for (size_t i = 0; i < must.dparams.size() && text.empty(); ++i) {
      const std::string name = absl::StrCat("dparams[", i, "]");
      text = Compare(name.c_str(), got.outcome.dparams[i], must.dparams[i], moved.dparams[i],
                     static_cast<int64_t>(must.dparams[i].size()), sums, &of_sums);
    }
  }
  if (text.empty()) return text;
  return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows],
                      " in ranges: ", text, " as in ", TypeName(widest), ", in one range");
}

// Errors of bf16 values against f32 ones, in units of the last place of bf16: sum and number for
// each bf16 value, so that a value that many elements have, as at saturation, counts once.
using Bias = std::map<double, std::pair<double, int64_t>>;

// Fewer values say nothing of their mean.
constexpr size_t kFewestValues = 300;

double MeanError(const Bias& bias) {
  double sum = 0;
  for (const auto& [value, errors] : bias) sum += errors.first / static_cast<double>(errors.second);
  return sum / static_cast<double>(bias.size());
}

std::string CompareRounding(const char* name, const Values& narrow, const Values& wide,
                            int64_t width, const Values& terms, Bias* bias) {
  const size_t w = static_cast<size_t>(width);
  for (size_t start = 0; start < wide.size(); start += w) {
    double largest = 0;
    for (size_t i = start; i < start + w; ++i) largest = std::max(largest, std::abs(wide[i]));
    // Where terms cancel, the rounding of f32 is what is left of them.
    if (!(largest < 1e30) || largest < 0.02 * terms[start / w]) continue;
    for (size_t i = start; i < start + w; ++i) {
      if (std::abs(wide[i]) < 1e-30) continue;
      const double ulp = std::ldexp(1, std::ilogb(wide[i]) - 7);
      const double error = (std::abs(narrow[i]) - std::abs(wide[i])) / ulp;
      // Another order of additions may end on the other side of a tie.
      const double slack = (2e-5 * largest + 4e-6 * terms[start / w]) / ulp;
      if (std::abs(narrow[i] - wide[i]) / ulp > 0.5 + slack) {
        return absl::StrFormat("%s is %.9g, %.2f ulp from %.9g as in f32: not the nearest",
                               PlaceInTensor(name, i, wide.size(), width), narrow[i], error,
                               wide[i]);
      }
      if (RoundTo(PLUMB_BF16, wide[i]) == wide[i] || slack > 0.1) continue;
      auto& [sum, count] = (*bias)[narrow[i]];
      sum += error;
      ++count;
    }
  }
  if (bias->size() < kFewestValues) return "";
  const double mean = MeanError(*bias);
  if (std::abs(mean) < 0.05 + 2 / std::sqrt(static_cast<double>(bias->size()))) return "";
  return absl::StrFormat(
      "%s has a mean error of %.2f ulp of its magnitude: it is not rounded to "
      "the nearest",
      name, mean);
}

std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, Point point) {
  point[kType] = 1;
  point[kAdd] = 0;
  if ((norm.dtypes & PLUMB_F32) == 0) return std::nullopt;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome narrow = RunAt(*instance, point, PLUMB_BF16, operands).outcome;
  const Outcome wide = RunAt(*instance, Plain(point), PLUMB_F32, operands).outcome;
  // Sums that nearly cancel are another thing (X1).
  const bool far_from_zero = point[kX] == 3 || point[kX] == 6;
  if (far_from_zero) return std::nullopt;
  Bias bias;
  std::string text = CompareRounding("y", narrow.y, wide.y, point[kDim],
                                     Values(static_cast<size_t>(point[kRows]), 0), &bias);
  const bool needs_y = (instance->layout().backward_needs & PLUMB_BWD_Y) != 0;
  if (text.empty() && !needs_y && point[kEvaluation] == 0) {
    Bias of_dx;
    text = CompareRounding("dx", narrow.dx, wide.dx, point[kDim],
                           RoundingOfTerms(operands, wide.y, point[kDim], 1), &of_dx);
  }
  if (text.empty()) return text;
  return absl::StrCat("bf16 dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

}  // namespace

void ExploreTypes(const Subject& subject, Report* report) {
  Explore(
      subject, "X1", [&](const Point& point) { return AgreesWithWidest(*subject.norm, point); },
      report);
}

void ExploreRounding(const Subject& subject, Report* report) {
  if ((subject.norm->dtypes & PLUMB_BF16) == 0) return report->Skip("it does not offer bf16");
  Explore(
      subject, "X4", [&](const Point& point) { return IsRounded(*subject.norm, point); }, report);
}

}  // namespace plumb::check
