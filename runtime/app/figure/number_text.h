// SPDX-License-Identifier: Apache-2.0
// Numbers as figures and their files contain them. Pure functions.
#ifndef PLUMB_RUNTIME_APP_FIGURE_NUMBER_TEXT_H_
#define PLUMB_RUNTIME_APP_FIGURE_NUMBER_TEXT_H_

#include <string>
#include <vector>

namespace plumb {

// Returns a coordinate with at most two decimals: "12", "12.5", "-0.25".
std::string CoordinateText(double value);

// Returns a finite value with four significant digits: "3.412", "10.83", "0.01230", or with an
// exponent at most four, "1.23e-7".
std::string SignificantText(double value);

// Returns the labels of an axis with as few digits as the values need, such as "0.5", "1.0" or
// "1e-3", "3e-3". All are decimal or all have an exponent. `is_uniform` gives all decimal labels
// the same number of digits after the point.
std::vector<std::string> TickLabels(const std::vector<double>& values, bool is_uniform);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_NUMBER_TEXT_H_
