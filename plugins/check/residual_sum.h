// The sum x + res that a norm makes itself, where it offers PLUMB_EXT_RESIDUAL: its terms at a
// point, and where it is to be put. Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_RESIDUAL_SUM_H_
#define PLUMB_PLUGINS_CHECK_RESIDUAL_SUM_H_

#include <vector>

#include "plugins/check/norm_run.h"
#include "plugins/check/point_run.h"
#include "plugins/check/points.h"
#include "plugins/check/rows.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

class ResidualSum {
 public:
  // The operands' x is the sum. extension() is null where the point has none, or the norm.
  ResidualSum(const NormRun& run, const Point& point, const Operands& operands);

  const plumb_norm_residual* extension() const { return extension_; }
  const std::vector<double>& first() const { return first_; }  // what call.x is
  Rows* terms() { return &terms_; }                            // res
  Rows* sum() { return &sum_; }

 private:
  const plumb_norm_residual* extension_ = nullptr;
  std::vector<double> first_;
  Rows terms_, sum_;
};

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RESIDUAL_SUM_H_
