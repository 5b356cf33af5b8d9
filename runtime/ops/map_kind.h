// SPDX-License-Identifier: Apache-2.0
// The functions that op map applies to each element, with a number c. Stateless.
//
//   exp, log, sqrt, abs, reciprocal   of x
//   cos, sin                          of x in radians
//   pow                               x ^ c
//   max, min                          of x and c; the derivative is 0 at c
//   floor                             of x; the derivative is 0
//   <, <=, >, >=, ==, !=              1 if x compares so with c, else 0
#ifndef PLUMB_RUNTIME_OPS_MAP_KIND_H_
#define PLUMB_RUNTIME_OPS_MAP_KIND_H_

#include <string>

#include "absl/status/statusor.h"

namespace plumb {

enum class MapKind {
  kExp,
  kLog,
  kSqrt,
  kAbs,
  kReciprocal,
  kCos,
  kSin,
  kPow,
  kMax,
  kMin,
  kFloor,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual
};

absl::StatusOr<MapKind> ParseMapKind(const std::string& name);
// Returns true for floor and comparisons, which have no gradient.
bool IsPiecewiseConstant(MapKind kind);

// References: the function and its derivative with respect to x.
double ReferenceMapValue(MapKind kind, double x, double c);
double ReferenceMapSlope(MapKind kind, double x, double c);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MAP_KIND_H_
