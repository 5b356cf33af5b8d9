// SPDX-License-Identifier: Apache-2.0
// Figure of one value with an interval per row, such as the final losses of models. A value.
#ifndef PLUMB_RUNTIME_APP_FIGURE_RANKING_FIGURE_H_
#define PLUMB_RUNTIME_APP_FIGURE_RANKING_FIGURE_H_

#include <limits>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "runtime/app/figure/axis.h"
#include "runtime/app/figure/drawing.h"

namespace plumb {

struct RankingRow {
  std::string name;
  double mean = std::numeric_limits<double>::quiet_NaN();  // NaN: no dot
  double low = std::numeric_limits<double>::quiet_NaN();   // NaN low or high: no interval
  double high = std::numeric_limits<double>::quiet_NaN();
  std::string note;  // at the right, such as "diverged"
};

struct RankingFigure {
  std::string title;
  std::string x_label;
  AxisScale x_scale = AxisScale::kLinear;
  std::vector<RankingRow> rows;      // from top to bottom
  absl::optional<double> reference;  // vertical line, such as the value of a baseline
  std::string reference_label;
  double width = 360;  // of the drawing, in points; at least 200. The height grows with the rows.

  // Returns the drawing. Without a value to show, it contains the words "no data".
  Drawing Draw() const;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_RANKING_FIGURE_H_
