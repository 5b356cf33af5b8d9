// SPDX-License-Identifier: Apache-2.0
// Figure of lines over a common x axis, such as losses over steps or over learning rates. A value.
#ifndef PLUMB_RUNTIME_APP_FIGURE_LINE_FIGURE_H_
#define PLUMB_RUNTIME_APP_FIGURE_LINE_FIGURE_H_

#include <limits>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "runtime/app/figure/axis.h"
#include "runtime/app/figure/drawing.h"

namespace plumb {

// Point of a line, with the band around it.
struct LinePoint {
  double x = 0;
  double mean = 0;
  double low = std::numeric_limits<double>::quiet_NaN();  // NaN low or high: no band here
  double high = std::numeric_limits<double>::quiet_NaN();
};

struct LineSeries {
  std::string name;
  // In the order of drawing. A point that the axes cannot show (NaN, infinite, not positive on a
  // log axis) is a gap in the line. A point between two gaps is drawn as a marker.
  std::vector<LinePoint> points;
};

struct LineFigure {
  std::string title;
  std::string x_label;
  std::string y_label;
  AxisScale x_scale = AxisScale::kLinear;
  AxisScale y_scale = AxisScale::kLinear;
  absl::optional<double> y_limit;  // high end of the y axis, if data are above: lines leave there
  bool with_markers = false;       // on every point
  std::vector<LineSeries> series;  // up to kSeriesStyles look different (palette.h)
  double width = 360;              // of the drawing, in points; at least 200
  double plot_height = 190;        // between the axes' ends; the legend may add to it

  // Returns the drawing. The legend is at the right of the plot, or below it if the names are long
  // or many; a single series without a name has none. Without a value to show, the axes are empty
  // and contain the words "no data". The size of the drawing does not grow with the number of
  // points, except for their markers.
  Drawing Draw() const;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_LINE_FIGURE_H_
