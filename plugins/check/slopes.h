// Gradients of a call at a point against central differences of forward. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_SLOPES_H_
#define PLUMB_PLUGINS_CHECK_SLOPES_H_

#include <string>

#include "plugins/check/point_run.h"

namespace plumb::check {

// The point with what slopes need: f64, training, x of sizes that steps can move.
Point ForSlopes(Point point);

// "" where dx, dx2 and dparams of the point's ranges are the slopes of forward in f64 along a
// random direction each, else the first that is not. *worst grows to the largest miss, as a part of
// the terms' sum; *is_problem: the call itself went wrong, not a slope.
std::string SlopeProblem(const Instance& instance, const Point& point, const Operands& operands,
                         double* worst, bool* is_problem);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_SLOPES_H_
