// SPDX-License-Identifier: Apache-2.0
// Axis of a figure: its scale, its range and its ticks. Thread-compatible.
#ifndef PLUMB_RUNTIME_APP_FIGURE_AXIS_H_
#define PLUMB_RUNTIME_APP_FIGURE_AXIS_H_

#include <limits>
#include <string>
#include <vector>

namespace plumb {

enum class AxisScale { kLinear, kLog10 };

// Direction in which an axis and its labels are drawn. Labels are horizontal on both.
enum class AxisDirection { kHorizontal, kVertical };

struct AxisTick {
  double value = 0;
  std::string label;
};

// Points along an axis that labels may use.
struct AxisRoom {
  double length = 0;  // between the ends of the axis
  double before = 0;  // in front of its low end
  double after = 0;   // behind its high end
};

class FigureAxis {
 public:
  explicit FigureAxis(AxisScale scale = AxisScale::kLinear) : scale_(scale) {}

  // Returns true if the axis can show a value. NaN, infinities, magnitudes above 1e100 and, on a
  // log axis, values below 1e-100 are not shown.
  bool CanShow(double value) const;

  // Extends the range to a value. Values that cannot be shown do nothing.
  void Include(double value);

  // Adds a share of the range at both ends. A range of one value becomes one around it. Requires:
  // is called once, after the last Include().
  void AddMargin(double share);

  // Lowers the high end of the range to a value inside it. Other values do nothing.
  void LimitHigh(double value);

  // Returns true if no value was included. Such an axis has the range 0 to 1, or 1 to 10.
  bool empty() const { return is_empty_; }

  // Returns the position of a value: 0 at the low end, 1 at the high end. Requires: CanShow(value)
  // and that AddMargin() was called.
  double Share(double value) const;

  // Returns the most ticks at round values whose labels, in Helvetica of the given size, neither
  // touch each other nor leave the room. There are none if no label fits.
  std::vector<AxisTick> Ticks(AxisDirection direction, const AxisRoom& room, double size) const;

 private:
  double Scaled(double value) const;
  double Unscaled(double scaled) const;
  std::vector<std::vector<double>> TickCandidates() const;

  AxisScale scale_;
  bool is_empty_ = true;
  double low_ = std::numeric_limits<double>::infinity();  // on the scale: log10 of values if kLog10
  double high_ = -std::numeric_limits<double>::infinity();
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_AXIS_H_
