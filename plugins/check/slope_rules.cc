// X2: dx and dparams, of calls in ranges, against central differences of forward in f64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rules.h"
#include "plugins/check/point_run.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

// Pairs of steps, as a part of the largest number of what is moved. The difference between both of
// a pair says how far a slope may be trusted. A kink, as of |x| at an x of almost 0, is stepped
// over by large ones and not by small ones, which round more: a gradient that is the slope by any
// pair is right.
constexpr double kSteps[][2] = {{1e-4, 5e-5}, {2e-6, 1e-6}, {2e-8, 1e-8}};
// The same for norms without f64.
constexpr double kStepsOfF32[][2] = {{1e-1, 5e-2}, {3e-2, 1.5e-2}, {1e-2, 5e-3}};

// A slope by two steps, and the gradient's answer.
struct Slope {
  double by_step[2] = {0, 0};
  double gradient = 0;
  double size = 0;   // sum of the magnitudes of the gradient's terms
  double noise = 0;  // what rounding of y may do
  double part = 1e-6;  // of `size` that the gradient may miss anyway
};

Slope SlopeIn(uint32_t type) {
  Slope slope;
  if (type == PLUMB_F32) slope.part = 2e-2;
  return slope;
}

// By how much the gradient misses the slope, as a part of `size`; 0 where that cannot be told.
double Miss(const Slope& s) {
  const double slope = s.by_step[1], trust = std::abs(s.by_step[0] - s.by_step[1]);
  const double size = s.size + std::abs(slope);
  if (!std::isfinite(size) || !std::isfinite(trust) || trust > 1e-3 * size) return 0;
  const double miss = std::abs(s.gradient - slope);
  return miss <= 30 * trust + s.part * size + s.noise + 1e-290 ? 0 : miss / size;
}

double Largest(const double* values, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

double Sign(std::mt19937_64* random) { return ((*random)() & 1) != 0 ? 1 : -1; }

// dy . (up - down) / (2 step) over elements [from, to).
void AddSlope(const Values& dy, const Values& up, const Values& down, size_t from, size_t to,
              double step, int which, Slope* slope) {
  const double rounding = slope->part > 1e-3 ? 5e-7 : 1e-15;
  for (size_t i = from; i < to; ++i) {
    slope->by_step[which] += dy[i] * (up[i] - down[i]) / (2 * step);
    slope->noise += rounding * std::abs(dy[i] * up[i]) / step;
  }
}

// An input, as a member of the operands, and its gradient.
struct Input {
  const char* name;
  Values Operands::*values;
  const Values& gradient;
  bool is_added;  // to what was there, and that subtracted again
};

// Slopes along a direction of an input: one a row, or one for all where rows depend on each other.
std::vector<Slope> SlopesInInput(const Instance& instance, const Point& point,
                                 const Operands& operands, const Input& input,
                                 const Values& direction, bool together, const double (&steps)[2]) {
  const Values& dx = input.gradient;
  const size_t rows = static_cast<size_t>(point[kRows]), width = static_cast<size_t>(point[kDim]);
  std::vector<Slope> slopes(together ? 1 : rows, SlopeIn(TypeOf(point)));
  for (int which = 0; which < 2; ++which) {
    Operands up = operands, down = operands;
    for (size_t i = 0; i < direction.size(); ++i) {
      (up.*input.values)[i] += steps[which] * direction[i];
      (down.*input.values)[i] -= steps[which] * direction[i];
    }
    const Values above = PlainY(instance, point, TypeOf(point), up),
                 below = PlainY(instance, point, TypeOf(point), down);
    for (size_t r = 0; r < rows; ++r) {
      AddSlope(operands.dy, above, below, r * width, (r + 1) * width, steps[which], which,
               &slopes[together ? 0 : r]);
    }
  }
  for (size_t i = 0; i < direction.size(); ++i) {
    Slope& slope = slopes[together ? 0 : i / width];
    slope.gradient += dx[i] * direction[i];
    slope.size += std::abs(dx[i] * direction[i]);
    if (input.is_added) slope.noise += 2 * UnitRoundoff(TypeOf(point)) * std::abs(direction[i]);
  }
  return slopes;
}

// By how much the gradient of an input misses the slope along a random direction, in the worst row.
std::string MissInInput(const Instance& instance, const Point& point, const Operands& operands,
                        const Input& input, double* worst) {
  const Values& x = operands.*input.values;
  const int64_t dim = point[kDim];
  const size_t rows = static_cast<size_t>(point[kRows]), width = static_cast<size_t>(dim);
  const bool together = (instance.norm().flags & PLUMB_NORM_CROSS_ROW) != 0;
  std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]) + 17);
  Values direction(x.size());
  for (size_t r = 0; r < rows; ++r) {
    const double largest = together ? 1 : Largest(&x[r * width], dim);
    double size = largest > 0 ? largest : 1e-3;
    // An eps may be so small that a row of zeros, or without spread, is a kink.
    const double first_x = x[r * width];
    const bool is_constant = std::all_of(x.begin() + static_cast<std::ptrdiff_t>(r * width),
                                         x.begin() + static_cast<std::ptrdiff_t>((r + 1) * width),
                                         [first_x](double value) { return value == first_x; });
    if (point[kAttributes] != 0 && is_constant && (width > 1 || first_x == 0)) size = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) direction[i] = Sign(&random) * size;
  }
  // Where y is NaN at x itself, as of zeros with an eps of 0, dx may be too.
  const Values y = PlainY(instance, point, TypeOf(point), operands);
  std::vector<bool> fine(together ? 1 : rows, true);
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) fine[together ? 0 : i / width] = false;
  }
  std::vector<Slope> first;                                  // by the first pair
  std::vector<double> least(together ? 1 : rows, HUGE_VAL);  // miss, by any pair
  for (const auto& steps : TypeOf(point) == PLUMB_F64 ? kSteps : kStepsOfF32) {
    const std::vector<Slope> slopes =
        SlopesInInput(instance, point, operands, input, direction, together, steps);
    if (first.empty()) first = slopes;
    for (size_t r = 0; r < slopes.size(); ++r) {
      const Slope& s = slopes[r];
      // A NaN in dx where y is fine is a finding too.
      const bool lost = fine[r] && !std::isfinite(s.gradient) && std::isfinite(s.by_step[1]) &&
                        std::abs(s.by_step[0] - s.by_step[1]) <= 1e-3 * std::abs(s.by_step[1]);
      if (!lost) least[r] = std::min(least[r], Miss(s));
    }
    if (std::all_of(least.begin(), least.end(), [](double miss) { return miss == 0; })) return "";
  }
  const size_t r =
      static_cast<size_t>(std::max_element(least.begin(), least.end()) - least.begin());
  *worst = std::max(*worst, least[r]);
  return absl::StrFormat("%s of row %d: the slope along a direction is %.9g, it gives %.9g",
                         input.name, r, first[r].by_step[1], first[r].gradient);
}

std::string MissInParam(const Instance& instance, const Point& point, const Operands& operands,
                        size_t param, const Values& dparam, double* worst) {
  std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]) + 31);
  const Values& values = operands.params[param];
  const double largest = Largest(values.data(), static_cast<int64_t>(values.size()));
  Values direction(values.size());
  // Of different sizes: with equal ones two gradients that are swapped are the same slope.
  std::uniform_real_distribution<double> size(0.4, 1);
  for (double& v : direction) v = Sign(&random) * size(random) * (largest > 0 ? largest : 1);
  double least = HUGE_VAL;
  Slope slope;
  for (const auto& steps : TypeOf(point) == PLUMB_F64 ? kSteps : kStepsOfF32) {
    slope = SlopeIn(TypeOf(point));
    for (int which = 0; which < 2; ++which) {
      Operands up = operands, down = operands;
      for (size_t i = 0; i < direction.size(); ++i) {
        up.params[param][i] += steps[which] * direction[i];
        down.params[param][i] -= steps[which] * direction[i];
      }
      AddSlope(operands.dy, PlainY(instance, point, TypeOf(point), up),
               PlainY(instance, point, TypeOf(point), down), 0, operands.dy.size(), steps[which], which,
               &slope);
    }
    for (size_t i = 0; i < direction.size(); ++i) {
      slope.gradient += dparam[i] * direction[i];
      slope.size += std::abs(dparam[i] * direction[i]);
    }
    least = std::min(least, Miss(slope));
    if (least == 0) return "";
  }
  *worst = std::max(*worst, least);
  return absl::StrFormat("dparams[%d] in ranges: the slope along a direction is %.9g, not %.9g",
                         param, slope.by_step[1], slope.gradient);
}

// "" where dx, dx2 and dparams of the point's ranges are the slopes of forward along a random
// direction each, else the first that is not. *worst grows to the largest miss, as a part of the
// terms' sum; *is_problem: the call itself went wrong, not a slope.
std::string SlopeProblem(const Instance& instance, const Point& point, const Operands& operands,
                         double* worst, bool* is_problem) {
  const PointResult got = RunAt(instance, point, TypeOf(point), operands);
  *is_problem = !got.problem.empty();
  if (*is_problem) return got.problem;
  Outcome outcome = got.outcome;
  if (point[kAdd] != 0) {
    for (double& value : outcome.dx) value -= kAddedTo;
  }
  std::string text = MissInInput(instance, point, operands,
                                 {"dx", &Operands::x, outcome.dx, point[kAdd] != 0}, worst);
  if (text.empty() && !operands.x2.empty()) {
    text =
        MissInInput(instance, point, operands, {"dx2", &Operands::x2, outcome.dx2, false}, worst);
  }
  for (size_t i = 0; i < operands.params.size() && text.empty(); ++i) {
    text = MissInParam(instance, point, operands, i, outcome.dparams[i], worst);
  }
  if (text.empty()) return text;
  return absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

std::optional<std::string> SlopesAt(const plumb_norm_plugin& norm, Point point, double* worst,
                                    bool* is_problem) {
  point[kType] = WidestType(norm) == PLUMB_F64 ? 2 : 0;
  point[kEvaluation] = 0;
  point[kFlushed] = 0;
  // Steps are no smaller for numbers so large: values and gradients of those are X1's.
  if (IsExtremeX(point)) point[kX] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  return SlopeProblem(*instance, point, OperandsAt(*instance, point), worst, is_problem);
}

}  // namespace

std::optional<std::string> HasSlopes(const plumb_norm_plugin& norm, const Point& point) {
  double worst = 0;
  bool is_problem = false;
  // Once for all types and modes.
  if (TypeOf(point) != WidestType(norm) || point[kFlushed] != 0) return std::nullopt;
  if ((norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) != 0) return std::nullopt;
  return SlopesAt(norm, point, &worst, &is_problem);
}

void ExploreSlopes(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if ((norm.dtypes & PLUMB_F64) == 0) return report->Skip("it does not offer f64");
  const bool approximate = (norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) != 0;
  double worst = 0;
  int64_t tried = 0;
  Explore(
      subject, "X2",
      [&](const Point& point) -> std::optional<std::string> {
        bool is_problem = false;  // of the call, not of a slope
        const std::optional<std::string> text = SlopesAt(norm, point, &worst, &is_problem);
        tried += text.has_value() ? 1 : 0;
        // By design it is not the slope: how far it is from it is what can be said.
        if (approximate && text.has_value() && !is_problem) return "";
        return text;
      },
      report);
  constexpr int64_t kEnough = 15;  // points, of every type and most shapes
  if (approximate && worst == 0 && tried >= kEnough) {
    report->Fail(
        absl::StrCat("APPROXIMATE_GRADIENT is claimed, but gradients are slopes at all of ", tried,
                     " points: with the flag no host looks at them"));
  } else if (approximate && !report->failed()) {
    report->Note(absl::StrFormat(
        "an approximate gradient: it misses slopes by up to %.3g of their terms' sum", worst));
  }
}

}  // namespace plumb::check
