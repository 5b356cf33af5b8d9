// SPDX-License-Identifier: Apache-2.0
// Parts that figures have in common: title, axes, names. Internal to runtime/app/figure. Functions
// append to a drawing, whose width is set before and whose height is set at the end.
#ifndef PLUMB_RUNTIME_APP_FIGURE_FRAME_H_
#define PLUMB_RUNTIME_APP_FIGURE_FRAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/app/figure/axis.h"
#include "runtime/app/figure/drawing.h"

namespace plumb {

inline constexpr double kFontSize = 8;
inline constexpr double kLineHeight = 11;
inline constexpr double kMargin = 4;  // between everything and the edge of the drawing
inline constexpr double kThinLine = 0.5;
inline constexpr double kLabelGap = 4;  // between a label and what it belongs to

// Returns a drawing with the title for screen readers, a width within the limits of figures, and
// without shapes.
Drawing EmptyDrawing(const std::string& title, double width);

// Appends a text of one line in the size of labels.
void AddLabel(const DrawingPoint& at, absl::string_view text, const DrawingColor& color,
              TextAnchor anchor, Drawing* drawing);

// Appends the title on up to three lines. Returns the position below it.
double AddTitle(const std::string& title, Drawing* drawing);

// Returns the width of the labels of ticks.
double WidthOf(const std::vector<AxisTick>& ticks);

// Returns the space that AddYLabel takes at the left edge: 0 without a label.
double YLabelWidth(const std::string& label);
// Appends a label at the left edge of the drawing, turned, at the middle of the area's height as
// far as it stays between `top` and `bottom`.
void AddYLabel(const std::string& label, const DrawingBox& area, double top, double bottom,
               Drawing* drawing);
// Appends a label below `top`, at the middle of the area's width. Returns the position below it.
double AddXLabel(const std::string& label, const DrawingBox& area, double top, Drawing* drawing);

// Appends the grid and the labels of a vertical axis, at the left of its area.
void AddYTicks(const FigureAxis& axis, const std::vector<AxisTick>& ticks, const DrawingBox& area,
               Drawing* drawing);
// Appends the grid, the line and the labels of a horizontal axis, at the bottom of its area or, if
// `with_top`, at the bottom and the top. Returns the position below the labels.
double AddXTicks(const FigureAxis& axis, bool with_top, const DrawingBox& area, Drawing* drawing);

// Appends the words "no data" in the middle of an area.
void AddNoData(const DrawingBox& area, Drawing* drawing);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_FRAME_H_
