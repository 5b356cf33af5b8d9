// SPDX-License-Identifier: Apache-2.0
// Figure of a table of values as colors and numbers, such as losses of models (rows) at learning
// rates (columns). A value.
#ifndef PLUMB_RUNTIME_APP_FIGURE_HEAT_MAP_FIGURE_H_
#define PLUMB_RUNTIME_APP_FIGURE_HEAT_MAP_FIGURE_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "runtime/app/figure/drawing.h"

namespace plumb {

// Value of each row that has a frame.
enum class FramedValue { kLowest, kHighest, kNone };

struct HeatMapFigure {
  std::string title;
  std::string x_label;      // of the columns
  std::string y_label;      // of the rows
  std::string value_label;  // of the color scale
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  // values[row][column]. NaN, an infinity or a missing element is a gray cell.
  std::vector<std::vector<double>> values;
  std::string missing_text = "diverged";  // of gray cells
  FramedValue framed = FramedValue::kLowest;
  absl::optional<double> color_limit;  // values above have the color of this one
  double width = 360;  // of the drawing, in points; at least 200. The height grows with the rows.

  // Returns the drawing. Cells that are too narrow for numbers have none. Without rows or columns
  // the drawing contains the words "no data".
  Drawing Draw() const;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_HEAT_MAP_FIGURE_H_
