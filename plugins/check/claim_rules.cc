// SPDX-License-Identifier: Apache-2.0
// Rules of the claims in a norm's flags, in every element type, at any dim.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

// Compares y for the given x with y for a moved x; each may differ from f64 by its rounding
// tolerance.
std::string CompareWithOriginal(const char* claim, const Instance& instance, const Point& point,
                                Operands operands, const std::vector<double>& x,
                                const std::vector<double>& moved) {
  const uint32_t type = TypeOf(point);
  std::vector<double> y[2];
  std::vector<double> allowed(x.size(), 0);
  for (const bool is_moved : {false, true}) {
    operands.x = is_moved ? moved : x;
    y[is_moved] = PlainY(instance, point, type, operands);
    const F64Reference wide(instance, point, type, operands, y[is_moved]);
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double value = y[is_moved][i];
      // The last term covers a part of eps.
      allowed[i] += wide.OfY(i / static_cast<size_t>(point[kDim])) + HalfUlp(type, value) +
                    1e-6 * std::abs(value);
    }
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (std::abs(y[1][i] - y[0][i]) <= allowed[i]) continue;
    return absl::StrFormat("%s is claimed, but %s is %.9g, must be %.9g (+- %.2g)", claim,
                           PlaceInTensor("y", i, allowed.size(), point[kDim]), y[1][i], y[0][i],
                           allowed[i]);
  }
  return "";
}

// Compares y for moderate x, far from zero and spread in rows and columns, with y for a multiple of
// x. An eps changes y by less than a percent, and a norm that saturates is not invariant.
std::string CompareModerate(const Instance& instance, const Point& point, Operands operands) {
  constexpr double kPart = 0.1;
  const auto dim = static_cast<size_t>(point[kDim]);
  std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]));
  std::vector<double> y[2];
  for (size_t i = 0; i < operands.x.size(); ++i) {
    const double size = 1 + static_cast<double>((i % dim + 3 * (i / dim)) % 4);
    operands.x[i] = (i + i / dim) % 2 == 0 ? size : -size;
    operands.x[i] *= 1 + static_cast<double>(random() % 17) / 64;
  }
  y[0] = PlainY(instance, point, TypeOf(point), operands);
  const double by = std::ldexp(1, 1 + static_cast<int>(point[kSeed] % 8));
  for (double& v : operands.x) v *= by;
  y[1] = PlainY(instance, point, TypeOf(point), operands);
  const std::string text = FirstDeviation("y", y[1], y[0], point[kDim], kPart, 0);
  return text.empty() ? text
                      : absl::StrFormat("SCALE_INVARIANT is claimed, but for %g x: %s", by, text);
}

std::string Identity(const Instance& instance, const Point& point, const Operands& operands) {
  if (instance.layout().n_params > 0) return "IDENTITY is claimed, but it has parameters";
  const PointResult got = RunAt(instance, point, TypeOf(point), operands);
  std::vector<double> must = operands.x;
  for (size_t i = 0; i < must.size(); ++i) {
    if (std::isnan(must[i]) && std::isnan(got.outcome.y[i])) must[i] = got.outcome.y[i];
  }
  const std::string text = FirstDifference("y", got.outcome.y, must, point[kDim]);
  return text.empty() ? text : absl::StrCat("IDENTITY is claimed, but ", text);
}

// Returns multiples of 1/16 with a few spare bits, so that a shift by 8 is exact in bf16 too.
std::vector<double> Sixteenths(size_t n, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> values(n);
  for (double& v : values) v = static_cast<double>(static_cast<int64_t>(random() % 49) - 24) / 16;
  return values;
}

}  // namespace

std::optional<std::string> KeepsClaims(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> as_drawn = InstanceAt(norm, point);
  if (as_drawn == nullptr) return std::nullopt;
  constexpr uint32_t kClaims =
      PLUMB_NORM_IDENTITY | PLUMB_NORM_SHIFT_INVARIANT | PLUMB_NORM_SCALE_INVARIANT;
  if ((norm.flags & kClaims) == 0) return std::nullopt;
  std::string text;
  // This claim holds for any attributes and any x, but denormals may count as zero.
  if ((norm.flags & PLUMB_NORM_IDENTITY) && point[kX] != kDenormalX) {
    text = Identity(*as_drawn, point, OperandsAt(*as_drawn, point));
    Point odd = point;
    odd[kX] = kNanX + point[kSeed] / 3 % 2;
    if (text.empty() && point[kSeed] % 3 == 1) {
      text = Identity(*as_drawn, odd, OperandsAt(*as_drawn, odd));
    }
  }
  // Invariances are only as exact as eps is small, so they use the default attributes.
  point[kAttributes] = 0;
  point[kX] = 0;
  point[kDy] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || !text.empty()) return At(point, text);
  // Evaluation subtracts the statistics of other rows.
  if (point[kEvaluation] != 0 && (norm.flags & PLUMB_NORM_CROSS_ROW)) return text;
  const Operands operands = OperandsAt(*instance, point);
  const std::vector<double> x = Sixteenths(operands.x.size(), point[kSeed]);
  if (norm.flags & PLUMB_NORM_SHIFT_INVARIANT) {
    constexpr double kShifts[] = {4, -4, 2, 8, -8, -2};
    std::vector<double> moved = x;
    double by = kShifts[point[kSeed] % 6];
    if (point[kType] != 1 && point[kSeed] % 2 == 1) by *= 128;
    for (double& v : moved) v += by;
    text = CompareWithOriginal("SHIFT_INVARIANT", *instance, point, operands, x, moved);
  }
  if (text.empty() && (norm.flags & PLUMB_NORM_SCALE_INVARIANT)) {
    // The factor is so large that eps is negligible even for the smallest of many rows.
    std::vector<double> large = operands.x, larger = operands.x;
    const double by = std::ldexp(1, 31 + static_cast<int>(point[kSeed] % 16));
    for (double& v : large) v *= 0x1p30;
    for (double& v : larger) v *= by;
    text = CompareWithOriginal("SCALE_INVARIANT", *instance, point, operands, large, larger);
  }
  if (text.empty() && (norm.flags & PLUMB_NORM_SCALE_INVARIANT)) {
    text = CompareModerate(*instance, point, operands);
  }
  return At(point, text);
}

}  // namespace plumb::check
