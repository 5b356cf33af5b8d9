// SPDX-License-Identifier: Apache-2.0
// F64Reference: the results of a call in f64 at a point, and the tolerances for the same results in
// another element type. A value.
//
// A result may differ by half a unit in the last place of its element type (final rounding), plus,
// before that, by r times the largest magnitude in its row, where r = u (8 + 4 sqrt(n)). u is the
// unit roundoff of the compute type (2^-24 for f32 and bf16, 2^-53 for f64), and n is the number of
// elements that are summed. Error amplification by the norm is measured, not derived:
//   - The f64 call is repeated with every operand moved by r times the largest of its row, in
//     random directions and in the opposite ones. A result may differ by twice the largest change
//     in its row.
//   - In short rows and groups such moves may cancel, as in a row of two that becomes +-1. So r
//     also multiplies s max|x| in y and s max|dy| in dx, where s is the steepest slope between
//     neighbours in the row, or |y / x| and |y(-x) / x|. Moves of a gain and of a bias may cancel
//     too, so in short rows each parameter is also moved alone.
// dparams are sums over rows of terms as large as dy: r and u sqrt(rows) multiply the root of their
// sum of squares. Norms with statistics over rows are treated as one long row. Magnitudes whose
// squares are outside the range of f32 are not compared, nor are results below its smallest normal
// number.
#ifndef PLUMB_PLUGINS_CHECK_TOLERANCE_H_
#define PLUMB_PLUGINS_CHECK_TOLERANCE_H_

#include <string>
#include <vector>

#include "plugins/check/run.h"

namespace plumb::check {

class F64Reference {
 public:
  // Computes one plain range in f64 (f32 if the norm does not offer f64), as the reference for
  // results in `dtype`. `y`: the values that backward has read, if the norm reads y.
  F64Reference(const Instance& instance, const Point& point, uint32_t dtype,
               const Operands& operands, const Values& y);

  // Returns "" if the results are within their tolerances, else the first that is not.
  std::string Compare(const Outcome& got) const;
  // Does the same for sums over rows: dparams and buffers.
  std::string CompareSums(const Outcome& got) const;

  // Returns the tolerance of y in a row before it is rounded to the element type.
  double YTolerance(size_t row) const { return y_[row]; }

 private:
  // `alike`, `mirrored`: y with equal parameters, of x and (in short rows alone) of -x.
  void MeasureRows(const Operands& operands, const Outcome& change, const Values& alike,
                   const Values& mirrored);
  void MeasureTensors(const Operands& operands, const Outcome& change);
  // `allowed`: tolerance of each element, of each row, or of all.
  std::string Compare(const std::string& name, const Values& got, const Values& must, int64_t width,
                      uint32_t dtype, const Values& allowed) const;

  const Point point_;
  const uint32_t dtype_;
  const bool over_rows_;
  const double u_, r_;
  double largest_param_ = 1;
  double steepest_ = 0, largest_y_ = 1;  // over all rows
  Outcome outcome_;
  Values y_, dx_;  // tolerance of each row
  double dx2_ = 0;
  Values dparams_, buffers_;  // tolerance of each tensor
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TOLERANCE_H_
