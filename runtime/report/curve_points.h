// SPDX-License-Identifier: Apache-2.0
// Points of the page's curves: blocks of consecutive steps, whose mean loss is drawn. Without them
// a page would have every loss of every run.
#ifndef PLUMB_RUNTIME_REPORT_CURVE_POINTS_H_
#define PLUMB_RUNTIME_REPORT_CURVE_POINTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumb {

// Max number of points of a run on a page with many runs or few.
inline constexpr int64_t kMinCurvePoints = 200, kMaxCurvePoints = 500;

// Returns the max number of points of each run on a page with `runs` runs: 500, and fewer, but at
// least 200, if they would be more than a million together.
int64_t CurvePoints(size_t runs);

// Returns the last step of each block of the curves of a group's runs, which are one step each if
// the longest run has at most `points` steps. Otherwise the first fifth of the points, the last two
// fifths, and the extremes are blocks of one step; the steps between them are divided into blocks
// of equal length. The extremes are the `points` / 20 steps with the loss that is furthest from the
// mean of its block, one in each block.
std::vector<int64_t> BlockEnds(const std::vector<const std::vector<double>*>& losses,
                               int64_t points);

// Returns the mean of a run's finite losses in each block, NaN for a block without any; ends with
// the block that has the last loss.
std::vector<double> BlockMeans(const std::vector<double>& losses, const std::vector<int64_t>& ends);

// Returns the lowest and the highest mean over runs of each block of more than one step, in the
// order of their steps; both are NaN in a block without any. With them the line of unsmoothed means
// looks as if it had every step.
std::vector<double> BlockExtremes(const std::vector<const std::vector<double>*>& losses,
                                  const std::vector<int64_t>& ends);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_CURVE_POINTS_H_
