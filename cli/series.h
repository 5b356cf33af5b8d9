// SPDX-License-Identifier: Apache-2.0
// Repeated measurements of one quantity, and their quantiles.
#ifndef PLUMB_CLI_SERIES_H_
#define PLUMB_CLI_SERIES_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "cli/output.h"

namespace plumb::cli {

// Measurements of successive rounds, or of several seeds. A value.
class Series {
 public:
  Series() = default;
  explicit Series(std::vector<double> values) : values_(std::move(values)) {}

  void Add(double value) { values_.push_back(value); }
  void Add(const Series& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  bool empty() const { return values_.empty(); }
  // Returns the q-quantile by linear interpolation; 0 if empty. Requires: 0 <= q <= 1, and no value
  // is NaN.
  double Quantile(double q) const;
  double Median() const { return Quantile(0.5); }
  Json ToJson() const {
    return {{"median", Median()}, {"p10", Quantile(0.1)}, {"p90", Quantile(0.9)}};
  }

 private:
  std::vector<double> values_;
};

inline double Series::Quantile(double q) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  // Interpolating between infinite values would produce NaN.
  if (part == 0 || sorted[below] == sorted[above]) return sorted[below];
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SERIES_H_
