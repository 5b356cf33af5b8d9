// SPDX-License-Identifier: Apache-2.0
// Colors and dashes of figures. Pure functions.
#ifndef PLUMB_RUNTIME_APP_FIGURE_PALETTE_H_
#define PLUMB_RUNTIME_APP_FIGURE_PALETTE_H_

#include <cstddef>
#include <vector>

#include "runtime/app/figure/drawing.h"

namespace plumb {

inline constexpr DrawingColor kPageColor = {0xffffff, 0x14171a};
inline constexpr DrawingColor kInkColor = {0x1b1e22, 0xe7e9e6};    // titles, values, marks
inline constexpr DrawingColor kMutedColor = {0x5a626b, 0xa3abb3};  // labels of axes
inline constexpr DrawingColor kAxisColor = {0x8d949b, 0x6b737b};
inline constexpr DrawingColor kGridColor = {0xe3e5e1, 0x2c3136};
inline constexpr DrawingColor kEmptyColor = {0xe9ebe6, 0x2a2f34};  // cells without a value

// Look of one series among several.
struct SeriesStyle {
  DrawingColor color;
  std::vector<double> dashes;  // as in DrawnLine
};

// Number of series that look different from each other.
inline constexpr size_t kSeriesStyles = 28;

// Returns the look of a series: seven colors with solid lines, then the same colors with three
// other dashes. The colors are those of report.html: they remain distinct with every kind of color
// vision, and have a contrast of 3:1 to the page.
SeriesStyle StyleOfSeries(size_t index);

// Returns the color of a value in a heat map, from 0 (dark) to 1 (light): viridis, which is
// perceptually uniform. It is the same on light and dark pages.
DrawingColor HeatColor(double share);

// Returns black or white, the one with more contrast to the background.
DrawingColor TextColorOn(const DrawingColor& background);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_PALETTE_H_
