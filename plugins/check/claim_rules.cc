// SPDX-License-Identifier: Apache-2.0
// Rule N13: the claims in a norm's flags, in every element type, at any dim.
#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

// Compares y for the given x with y for `scale` x + `shift`; each may differ from f64 by its
// rounding tolerance.
std::string CompareMoved(const char* claim, const Instance& instance, const Point& point,
                         Operands operands, double scale, double shift) {
  const uint32_t type = GetType(point);
  Values y[2], allowed(operands.x.size());
  for (const bool is_moved : {false, true}) {
    for (double& x : operands.x) x = is_moved ? scale * x + shift : x;
    y[is_moved] = PlainY(instance, point, type, operands);
    const F64Reference reference(instance, point, type, operands, y[is_moved]);
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double value = y[is_moved][i];
      // The last term covers a part of eps.
      allowed[i] +=
          reference.YTolerance(i / instance.dim()) + HalfUlp(type, value) + 1e-6 * std::abs(value);
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
  const size_t dim = instance.dim();
  for (size_t i = 0; i < operands.x.size(); ++i) {
    const double size = 1 + static_cast<double>((i % dim + 3 * (i / dim)) % 4);
    operands.x[i] = size + static_cast<double>(i * 7 % 17) / 64;
    if ((i + i / dim) % 2 != 0) operands.x[i] *= -1;
  }
  const Values y = PlainY(instance, point, GetType(point), operands);
  const double by = std::ldexp(1, 1 + static_cast<int>(point[kSeed] % 8));
  for (double& x : operands.x) x *= by;
  const std::string text = FirstDeviation("y", PlainY(instance, point, GetType(point), operands), y,
                                          point[kDim], kPart, 0);
  return text.empty() ? text
                      : absl::StrFormat("SCALE_INVARIANT is claimed, but for %g x: %s", by, text);
}

std::string CompareIdentity(const Instance& instance, const Point& point) {
  if (instance.layout().n_params > 0) return "IDENTITY is claimed, but it has parameters";
  const Operands operands = OperandsAt(instance, point);
  const Values y = RunAt(instance, point, operands).y;
  Values must = operands.x;
  for (size_t i = 0; i < must.size(); ++i) {
    if (std::isnan(must[i]) && std::isnan(y[i])) must[i] = y[i];
  }
  const std::string text = FirstDifference("y", y, must, point[kDim]);
  return text.empty() ? text : "IDENTITY is claimed, but " + text;
}

}  // namespace

Result KeepsClaims(const Norm& norm, const Point& given) {
  constexpr uint32_t kClaims =
      PLUMB_NORM_IDENTITY | PLUMB_NORM_SHIFT_INVARIANT | PLUMB_NORM_SCALE_INVARIANT;
  Point point = given;
  std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || !instance->Has(kClaims)) return std::nullopt;
  // This claim holds for any attributes and any x, but denormals may count as zero.
  if (instance->Has(PLUMB_NORM_IDENTITY) && point[kX] != kDenormalX) {
    const std::string text =
        CompareIdentity(*instance, point[kSeed] % 3 == 1 ? WithOddX(point) : point);
    if (!text.empty()) return At(point, text);
  }
  // Invariances are only as exact as eps is small, so they use the default attributes.
  point[kAttributes] = point[kX] = point[kDy] = 0;
  instance = InstanceAt(norm, point);
  // Evaluation subtracts the statistics of other rows.
  const bool is_other = point[kEvaluation] != 0 && (norm.flags & PLUMB_NORM_CROSS_ROW) != 0;
  if (instance == nullptr || is_other) return "";
  Operands operands = OperandsAt(*instance, point);
  std::string text;
  if (instance->Has(PLUMB_NORM_SCALE_INVARIANT)) {
    // The numbers are so large that eps is negligible even for the smallest of many rows.
    Operands large = operands;
    for (double& x : large.x) x *= 0x1p30;
    text = CompareMoved("SCALE_INVARIANT", *instance, point, large,
                        std::ldexp(2, static_cast<int>(point[kSeed] % 16)), 0);
    if (text.empty()) text = CompareModerate(*instance, point, operands);
  }
  if (text.empty() && instance->Has(PLUMB_NORM_SHIFT_INVARIANT)) {
    // Multiples of 1/16 with a few spare bits, so that a shift by 8 is exact in bf16 too.
    std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]));
    for (double& x : operands.x) x = (static_cast<double>(random() % 49) - 24) / 16;
    constexpr double kShifts[] = {4, -4, 2, 8, -8, -2};
    double by = kShifts[point[kSeed] % 6];
    if (point[kType] != 1 && point[kSeed] % 2 == 1) by *= 128;
    text = CompareMoved("SHIFT_INVARIANT", *instance, point, operands, 1, by);
  }
  return At(point, text);
}

}  // namespace plumb::check
