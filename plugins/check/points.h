// SPDX-License-Identifier: Apache-2.0
// The space of calls that rules (rules.h) are tried in: a point is one call of a norm, with its
// shape, its operands and the way it is made. Fixed corners come first, and for checks that explore
// random points until the time is over; a point that fails is shrunk, and named so that --point
// repeats it.
// Points are values; exploring uses one thread.
#ifndef PLUMB_PLUGINS_CHECK_POINTS_H_
#define PLUMB_PLUGINS_CHECK_POINTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins/check/check.h"

namespace plumb::check {

// The simplest value of an axis is 0; of kDim, kRows and kTo it is 1.
enum Axis {
  kDim,
  kRows,
  kFrom,  // the range that is called first: rows [kFrom, kTo), then those before and after
  kTo,
  kType,        // 0: f32, 1: bf16, 2: f64
  kAttributes,  // index into CasesOf()
  kHeads,       // rows of a token, of which the host tells the norm; 0: it tells of none
  kContext,     // 1: calls tell the positions of tokens, sequences and the step
  kEvaluation,  // 0: training
  kFlushed,     // denormals
  kPlace,  // 0: 64-byte aligned, 1: packed, 2: odd offset and pitch, 3: ends at unreadable memory,
           // 4: begins there
  kPitches,  // 1: every operand has a pitch of its own
  kAlias,    // y is x, dx is dy, where the norm offers it
  kAdd,      // PLUMB_CALL_DX_ACCUMULATE
  kResidual,  // x is a sum that the norm takes itself, where it offers plumb.norm.residual
  kHost,      // 1: a host of v1.0 calls, 2: a newer one, whose structs are longer
  kPieces,    // 1: ranges have dparams of their own, statistics are of ranges; 2: as the host cuts
  kX,         // what x is drawn from, see DrawX
  kDy,        // what dy is drawn from, see DrawDy
  kParams,    // what parameters are, see Changed
  kSeed,      // of the operands
  kAxes
};
// Of kX, those that have a name.
enum KindOfX {
  kHugeX = 8, kVanishingX, kDenormalX, kNarrowX, kConstantX, kOutlierX, kEqualRowsX, kOneNumberX
};
// How many kinds of operands there are (point_run.cc).
inline constexpr int64_t kKindsOfX = 16, kKindsOfDy = 8, kKindsOfParams = 8;
using Point = std::array<int64_t, kAxes>;

// "\nrepeat: plumb plugin check FILE --check X1 --point ...".
std::string RepeatCommand(const std::string& path, const char* check, const std::string& point);

// "dim=768,rows=33,to=8,type=bf16,seed=5": axes at their simplest value are left out.
std::string NameOfPoint(const Point& point);
std::optional<Point> ParsePoint(const std::string& text);

// What must hold at a point. "" if it does, else what is wrong; none where there is nothing to see,
// as where create() refuses the dim.
using Property = std::function<std::optional<std::string>(const Point&)>;

// Tries `property` at Subject::point if that is given, else at all of `points`. Fails `report` with
// the smallest failing point, skips it if the property applies to none.
void TryPoints(const Subject& subject, const char* check, const Property& property,
               const std::vector<Point>& points, Report* report);

// The same at corners of the space and then at random points for Subject::seconds. The point is in the trace while it is tried. With Subject::shrinks each try is
// a process of its own, so that one that crashes can be made smaller. Fails `report` with the
// smallest failing point, and notes how many were tried.
void Explore(const Subject& subject, const char* check, const Property& property, Report* report);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_POINTS_H_
