// SPDX-License-Identifier: Apache-2.0
// Space of calls in which rules (rules.h) are tested: a point is one call of a norm, with its
// shape, its operands and the way it is called. A check tries fixed points, then random points
// until its time is over. A failing point is shrunk and named, so that --point repeats it. Points
// are values; exploration uses one thread.
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

// Axes of a point. The simplest value of an axis is 0, 1 for kDim and kRows, and kRows for kTo.
enum Axis {
  kDim,
  kRows,
  kFrom,  // start of the range that is called last, [kFrom, kTo), after the other rows
  kTo,
  kType,        // 0: f32, 1: bf16, 2: f64
  kAttributes,  // index into GetCases()
  kHeads,       // plumb_host::heads, the rows per token; 0: not given
  kContext,     // 1: calls have a context with positions, sequences and the step
  kEvaluation,  // 0: training
  kFlushed,     // denormals are flushed to zero
  // Placement; 0: 64-byte aligned, 1: packed, 2: odd offset and pitch, 3: ends at unreadable
  // memory, 4: begins there, 5: rows are gigabytes apart (not drawn).
  kPlace,
  kPitches,   // 1: every operand has a different pitch
  kAlias,     // y aliases x, dx aliases dy, x2 is x, if the norm allows it
  kAdd,       // PLUMB_CALL_DX_ACCUMULATE, and dparams that are not zero
  kResidual,  // x is a sum that the norm computes itself, if it offers plumb.norm.residual
  kHost,      // 1: a host of v1.0, 2: a newer host with longer structs (not drawn)
  kPieces,    // 1: ranges and statistics as long as [kFrom, kTo); each range has its own dparams
  kX,         // distribution of x, see DrawRow
  kDy,        // distribution of dy, see DrawRow
  kParams,    // change of the parameters, see Changed
  kSeed,      // seed of the operands
  kAxes
};
// Distributions of x and dy that have a name (run.cc). Rules use the last two of their own accord.
enum Distribution {
  kHugeX = 8,
  kVanishingX,
  kDenormalX,
  kNarrowX,
  kConstantX,
  kOutlierX,
  kEqualRowsX,
  kOneNumberX,
  kDistributions,
  kNanX = kDistributions,
  kInfiniteX
};
using Point = std::array<int64_t, kAxes>;

// Forms of a call: axes that change how a call is made and not what it computes, as bits 1 << axis.
inline constexpr uint32_t kRangeForms = 1u << kFrom | 1u << kTo;
// Returns the point with all forms but `forms` at their simplest: aligned operands, one range.
Point WithForms(Point point, uint32_t forms);
inline Point Plain(const Point& point) { return WithForms(point, 0); }

// Returns text such as "dim=768,rows=33,to=8,type=bf16,seed=5", without axes at their simplest
// value.
std::string NameOfPoint(const Point& point);
// Returns the points of a pattern, in which an axis may have alternatives: "dim=7|64,rows=5". A
// pattern without a type stands for f32, bf16, f64, and f32 with denormals flushed. "attributes=*"
// stands for the first kSingleCases. Empty if the text is not a pattern.
std::vector<Point> ParsePoints(const std::string& pattern);
inline constexpr int64_t kSingleCases = 24;
// Returns the point; nullopt if the text is not one.
std::optional<Point> ParsePoint(const std::string& text);
// Returns "\nrepeat: plumb plugin check FILE --check N1 --point ...".
std::string RepeatCommand(const std::string& path, const char* check, const std::string& point);

// Property that must hold at a point: "" if it holds, else the problem; nullopt if it does not
// apply, for example if create() refuses the dim.
using Property = std::function<std::optional<std::string>(const Point&)>;

// Tests `property` at Subject::point if that is given, else at the `fixed` points and at random
// points that vary `forms`, for Subject::seconds. The trace contains the point while it is tried.
// Fails `report` with the smallest failing point, or notes the number of points.
void Explore(const Subject& subject, const char* check, const Property& property,
             const std::vector<std::string>& fixed, uint32_t forms, Report* report);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_POINTS_H_
