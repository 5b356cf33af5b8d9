// The results of a call in f64 at a point, and how far the same results in another element type may
// be from them (error_bounds.h). A value.
#ifndef PLUMB_PLUGINS_CHECK_WIDE_RUN_H_
#define PLUMB_PLUGINS_CHECK_WIDE_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/check/error_bounds.h"
#include "plugins/check/point_run.h"

namespace plumb::check {

class WideRun {
 public:
  // Of one plain range in `widest`, for results in `dtype`. `y` is what backward of a norm that
  // reads y has read there.
  WideRun(const Instance& instance, const Point& point, uint32_t widest, uint32_t dtype,
          const Operands& operands, const std::vector<double>& y);

  const Outcome& outcome() const { return outcome_; }

  // "" where the results are within their bounds, else the first that is not.
  std::string CompareY(const std::vector<double>& got) const;
  std::string CompareDx(const std::vector<double>& got, double added) const;  // to what is there
  std::string CompareDx2(const std::vector<double>& got) const;
  std::string CompareSums(const std::vector<std::vector<double>>& got) const;
  std::string CompareBuffers(const std::vector<std::vector<double>>& got) const;

  // How far y and dx of a row may be off before they are rounded to the element type.
  double OfY(size_t row) const;
  double OfDx(size_t row) const;

 private:
  void MeasureRows(const std::vector<double>& y);
  void MeasureSlopes();
  void MeasureInputs();
  void MeasureSecond();
  void MeasureSums(const std::vector<double>& y);
  std::vector<double> Jumps() const;
  std::vector<double> SlopesNearZero() const;
  std::string Compare(const char* name, const std::vector<double>& got,
                      const std::vector<double>& must, const std::vector<double>& zero,
                      int64_t width, const std::vector<double>& allowed) const;
  bool MayOverflow(const RowSizes& row) const;

  const Instance& instance_;
  const Point point_;
  const uint32_t widest_, dtype_;
  const Operands& operands_;
  const double u_;
  const size_t width_;
  const bool columns_;    // statistics over rows
  bool extreme_ = false;  // x has squares that the accumulate type has not
  double largest_param_ = 1;
  double terms_of_second_ = 0;  // T of dx2, of all rows
  Outcome outcome_, of_zero_;
  std::vector<RowSizes> rows_;
  std::vector<std::vector<double>> roots_;  // S of each element of dparams
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_WIDE_RUN_H_
