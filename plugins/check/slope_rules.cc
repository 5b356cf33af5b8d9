// SPDX-License-Identifier: Apache-2.0
// Rule N2: compares dx, dx2 and dparams of a plain call with central differences of forward, in
// f64, or in f32 if f64 is not offered.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"

namespace plumb::check {
namespace {

// Pairs of steps, relative to the largest magnitude of the moved operand. The difference within a
// pair shows how exact a slope is. Large steps may cross a kink, such as |x| near 0; small steps do
// not, but round more. A gradient that equals the slope of any pair is right.
constexpr double kSteps[][2] = {{1e-4, 5e-5}, {2e-6, 1e-6}, {2e-8, 1e-8}};
// Steps for norms without f64.
constexpr double kStepsOfF32[][2] = {{1e-1, 5e-2}, {3e-2, 1.5e-2}, {1e-2, 5e-3}};

// Slope from two steps, and the value that the gradient implies.
struct Slope {
  double by_step[2] = {0, 0};
  double gradient = 0;
  double size = 0;     // sum of the magnitudes of the gradient's terms
  double noise = 0;    // possible effect of the rounding of y
  double part = 1e-6;  // fraction of `size` that is tolerated in any case
};

Slope SlopeIn(uint32_t type) {
  Slope slope;
  if (type == PLUMB_DTYPE_F32) slope.part = 2e-2;
  return slope;
}

// Returns the difference between gradient and slope relative to `size`; 0 if it cannot be
// determined.
double Miss(const Slope& s) {
  const double slope = s.by_step[1], trust = std::abs(s.by_step[0] - s.by_step[1]);
  const double size = s.size + std::abs(slope);
  if (!std::isfinite(size) || !std::isfinite(trust) || trust > 1e-3 * size) return 0;
  const double miss = std::abs(s.gradient - slope);
  return miss <= 30 * trust + s.part * size + s.noise + 1e-290 ? 0 : miss / size;
}

// Adds dy . (up - down) / (2 step) over elements [from, to).
void AddSlope(const Values& dy, const Values& up, const Values& down, size_t from, size_t to,
              double step, int which, Slope* slope) {
  const double rounding = slope->part > 1e-3 ? 5e-7 : 1e-15;
  for (size_t i = from; i < to; ++i) {
    slope->by_step[which] += dy[i] * (up[i] - down[i]) / (2 * step);
    slope->noise += rounding * std::abs(dy[i] * up[i]) / step;
  }
}

// Input of forward, and its gradient.
struct Input {
  std::string name;  // "dx"
  std::function<Values&(Operands*)> values;
  const Values& gradient;
  bool together;  // one slope for all rows, because they depend on each other or share the input
};

// Returns the slopes along a direction of an input: one per row, or one for all rows.
std::vector<Slope> SlopesAlong(const Instance& instance, const Point& point,
                               const Operands& operands, const Input& input,
                               const Values& direction, const double (&steps)[2]) {
  const size_t rows = static_cast<size_t>(point[kRows]), width = static_cast<size_t>(point[kDim]);
  std::vector<Slope> slopes(input.together ? 1 : rows, SlopeIn(GetType(point)));
  for (int which = 0; which < 2; ++which) {
    Operands up = operands, down = operands;
    for (size_t i = 0; i < direction.size(); ++i) {
      input.values(&up)[i] += steps[which] * direction[i];
      input.values(&down)[i] -= steps[which] * direction[i];
    }
    const Values above = PlainY(instance, point, GetType(point), up),
                 below = PlainY(instance, point, GetType(point), down);
    for (size_t r = 0; r < rows; ++r) {
      AddSlope(operands.dy, above, below, r * width, (r + 1) * width, steps[which], which,
               &slopes[input.together ? 0 : r]);
    }
  }
  for (size_t i = 0; i < direction.size(); ++i) {
    Slope& slope = slopes[input.together ? 0 : i / width];
    slope.gradient += input.gradient[i] * direction[i];
    slope.size += std::abs(input.gradient[i] * direction[i]);
  }
  return slopes;
}

// Returns a random direction of an input. Components of a parameter's direction have different
// magnitudes, because with equal ones two swapped gradients would have the same slope.
Values ComputeDirection(const Values& x, const Point& point, bool is_param, bool together) {
  std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]) + (is_param ? 31 : 17));
  std::uniform_real_distribution<double> part(0.4, 1);
  Values direction(x.size());
  const size_t width = is_param ? x.size() : static_cast<size_t>(point[kDim]);
  for (size_t start = 0; start < x.size(); start += width) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(start);
    const auto end = begin + static_cast<std::ptrdiff_t>(width);
    const double largest = together && !is_param ? 1 : LargestMagnitude({begin, end});
    double size = largest > 0 ? largest : is_param ? 1 : 1e-3;
    // eps may be so small that a row of zeros, or without spread, is a kink.
    const bool is_constant = std::all_of(begin, end, [&](double value) { return value == *begin; });
    if (!is_param && point[kAttributes] != 0 && is_constant && (width > 1 || *begin == 0)) size = 0;
    for (size_t i = start; i < start + width; ++i) {
      direction[i] = ((random() & 1) != 0 ? size : -size) * (is_param ? part(random) : 1);
    }
  }
  return direction;
}

// Compares the gradient of an input with the slope along a random direction. Returns the mismatch
// in the worst row, or "".
std::string MissAlong(const Instance& instance, const Point& point, Operands operands,
                      const Input& input, bool is_param, double* worst) {
  const Values direction =
      ComputeDirection(input.values(&operands), point, is_param, input.together);
  const size_t rows = input.together ? 1 : static_cast<size_t>(point[kRows]);
  // If y is NaN at x itself, such as for zeros with an eps of 0, dx may be NaN too.
  const Values y = PlainY(instance, point, GetType(point), operands);
  std::vector<bool> fine(rows, true);
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) fine[i * rows / y.size()] = false;
  }
  std::vector<Slope> first;                   // slopes of the first pair
  std::vector<double> least(rows, HUGE_VAL);  // smallest miss by any pair
  for (const auto& steps : GetType(point) == PLUMB_DTYPE_F64 ? kSteps : kStepsOfF32) {
    const std::vector<Slope> slopes =
        SlopesAlong(instance, point, operands, input, direction, steps);
    if (first.empty()) first = slopes;
    for (size_t r = 0; r < slopes.size(); ++r) {
      const Slope& s = slopes[r];
      // A NaN in dx is a failure if y is finite.
      const bool lost = fine[r] && !std::isfinite(s.gradient) && std::isfinite(s.by_step[1]) &&
                        std::abs(s.by_step[0] - s.by_step[1]) <= 1e-3 * std::abs(s.by_step[1]);
      if (!lost) least[r] = std::min(least[r], Miss(s));
    }
    if (std::all_of(least.begin(), least.end(), [](double miss) { return miss == 0; })) return "";
  }
  const size_t r =
      static_cast<size_t>(std::max_element(least.begin(), least.end()) - least.begin());
  *worst = std::max(*worst, least[r]);
  return absl::StrFormat("%s%s: the slope along a direction is %.9g, it gives %.9g", input.name,
                         input.together ? "" : absl::StrCat(" of row ", r), first[r].by_step[1],
                         first[r].gradient);
}

// Compares with slopes along a random direction of each input. Raises *worst to the largest miss,
// relative to the sum of the terms.
Result SlopesAt(const Norm& norm, Point point, double* worst) {
  point[kType] = WidestType(norm) == PLUMB_DTYPE_F64 ? 2 : 0;
  point[kEvaluation] = point[kFlushed] = 0;
  // Steps do not scale with such large numbers; N1 checks their values and gradients.
  if (IsExtremeX(point)) point[kX] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome outcome = RunAt(*instance, point, operands);
  const bool together = instance->Has(PLUMB_NORM_CROSS_ROW);
  std::vector<Input> inputs = {
      {"dx", [](Operands* all) -> Values& { return all->x; }, outcome.dx, together}};
  if (!operands.x2.empty()) {
    inputs.push_back(
        {"dx2", [](Operands* all) -> Values& { return all->x2; }, outcome.dx2, together});
  }
  const size_t of_rows = inputs.size();
  for (size_t i = 0; i < operands.params.size(); ++i) {
    inputs.push_back({absl::StrCat("dparams[", i, "]"),
                      [i](Operands* all) -> Values& { return all->params[i]; }, outcome.dparams[i],
                      true});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = MissAlong(*instance, point, operands, inputs[i], i >= of_rows, worst);
    if (!text.empty()) return At(point, text);
  }
  return "";
}

}  // namespace

void CheckSlopes(const Norm& norm, const Explorer& explore, Report* report) {
  constexpr int64_t kEnough = 15;  // points, of every type and most shapes
  const bool approximate = (norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) != 0;
  double worst = 0;
  int64_t tried = 0;
  explore([&](const Point& point) -> Result {
    const Result text = SlopesAt(norm, point, &worst);
    tried += text.has_value() ? 1 : 0;
    // The gradient differs from the slope by design, so only the distance is reported.
    return approximate && text.has_value() ? "" : text;
  });
  if (!approximate || report->failed()) return;
  if (worst == 0 && tried >= kEnough) {
    report->Fail(absl::StrCat("APPROXIMATE_GRADIENT is claimed, but gradients are slopes at all ",
                              tried, " points: with the flag no host looks at them"));
  } else {
    report->Note(absl::StrFormat(
        "an approximate gradient: it misses slopes by up to %.3g of their terms' sum", worst));
  }
}

}  // namespace plumb::check
