// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/map_kind.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

// Names, in the order of MapKind.
constexpr const char* kNames[] = {"exp", "log", "sqrt", "abs", "reciprocal", "cos",
                                  "sin", "pow", "max",  "min", "floor",      "<",
                                  "<=",  ">",   ">=",   "==",  "!="};

}  // namespace

absl::StatusOr<MapKind> ParseMapKind(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<MapKind>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown function \"", name, "\" of map"));
}

bool IsPiecewiseConstant(MapKind kind) { return kind >= MapKind::kFloor; }

double ReferenceMapValue(MapKind kind, double x, double c) {
  switch (kind) {
    case MapKind::kExp:
      return std::exp(x);
    case MapKind::kLog:
      return std::log(x);
    case MapKind::kSqrt:
      return std::sqrt(x);
    case MapKind::kAbs:
      return std::abs(x);
    case MapKind::kReciprocal:
      return 1 / x;
    case MapKind::kCos:
      return std::cos(x);
    case MapKind::kSin:
      return std::sin(x);
    case MapKind::kPow:
      return std::pow(x, c);
    case MapKind::kMax:
      return std::max(x, c);
    case MapKind::kMin:
      return std::min(x, c);
    case MapKind::kFloor:
      return std::floor(x);
    case MapKind::kLess:
      return x < c ? 1 : 0;
    case MapKind::kLessEqual:
      return x <= c ? 1 : 0;
    case MapKind::kGreater:
      return x > c ? 1 : 0;
    case MapKind::kGreaterEqual:
      return x >= c ? 1 : 0;
    case MapKind::kEqual:
      return x == c ? 1 : 0;
    case MapKind::kNotEqual:
      break;
  }
  return x != c ? 1 : 0;
}

double ReferenceMapSlope(MapKind kind, double x, double c) {
  switch (kind) {
    case MapKind::kExp:
      return std::exp(x);
    case MapKind::kLog:
      return 1 / x;
    case MapKind::kSqrt:
      return 0.5 / std::sqrt(x);
    case MapKind::kAbs:
      return (x > 0) - (x < 0);
    case MapKind::kReciprocal:
      return -1 / (x * x);
    case MapKind::kCos:
      return -std::sin(x);
    case MapKind::kSin:
      return std::cos(x);
    case MapKind::kPow:
      return c * std::pow(x, c - 1);
    case MapKind::kMax:
      return x > c ? 1 : 0;
    case MapKind::kMin:
      return x < c ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace plumb
