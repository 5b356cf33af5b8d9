// SPDX-License-Identifier: Apache-2.0
// The results of a call in f64 at a point, and how far the same results in another element type may
// be from them. A value.
//
// A result is rounded to its element type, which is half a unit in its last place. Before that it
// may be off by r of the largest number of its row, where r = u (8 + 4 sqrt(n)): u is the rounding
// unit of the type that is computed in (2^-24 for f32 and bf16, 2^-53 for f64), n the number of
// elements that are summed. What the norm does with errors is measured, not derived:
//   - The f64 call is made again with every operand moved by r of the largest of its row, to random
//     sides and to the other ones. A result may be off by twice what the largest of its row moves.
//   - In short rows and groups such moves may cancel, as in a row of two that becomes +-1. So r
//     counts for s max|x| in y and for s max|dy| in dx too, where s is the steepest slope between
//     neighbours of the row, or |y / x|. Those of a gain and of a bias may cancel too, so that in short
//     rows each parameter is also moved alone.
// dparams are sums over rows of terms as large as dy: r and u sqrt(rows) count for the root of their
// squares. For norms with statistics over rows all rows are one. Sizes whose squares f32 does not
// have are not compared.
#ifndef PLUMB_PLUGINS_CHECK_TOLERANCE_H_
#define PLUMB_PLUGINS_CHECK_TOLERANCE_H_

#include <string>
#include <vector>

#include "plugins/check/point_run.h"

namespace plumb::check {

class F64Reference {
 public:
  // One plain range in f64, or f32 where the norm does not offer it, for results in `dtype`. `y` is
  // what backward of a norm that reads y has read there.
  F64Reference(const Instance& instance, const Point& point, uint32_t dtype,
               const Operands& operands, const std::vector<double>& y);

  // "" where the results are within their tolerances, else the first that is not.
  // `added`: dx is a sum with kAddedTo.
  std::string Compare(const Outcome& got, bool added) const;

  // How far y and dx of a row may be off before they are rounded to the element type.
  double OfY(size_t row) const { return rows_[row].y; }
  double OfDx(size_t row) const { return rows_[row].dx; }

 private:
  struct Allowed {
    double y = 0, dx = 0;
  };
  void MeasureRows(const Operands& operands, const Outcome& change,
                   const std::vector<double>& alike);
  void MeasureTensors(const Operands& operands, const Outcome& change);
  std::string Compare(const std::string& name, const std::vector<double>& got,
                      const std::vector<double>& must, int64_t width, uint32_t dtype,
                      const std::vector<double>& allowed, double added = 0) const;

  const Point point_;
  const uint32_t dtype_;
  const bool over_rows_;
  const double u_, r_;
  double largest_param_ = 1;
  double steepest_ = 0, largest_y_ = 1;  // of all rows
  Outcome outcome_;
  std::vector<Allowed> rows_;
  double dx2_ = 0;
  std::vector<double> dparams_, buffers_;  // of each tensor
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TOLERANCE_H_
