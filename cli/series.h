// SPDX-License-Identifier: Apache-2.0
// Repeated measurements of one quantity, and their quantiles.
#ifndef PLUMB_CLI_SERIES_H_
#define PLUMB_CLI_SERIES_H_

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
  Json ToJson() const;  // {"median", "p10", "p90"}

 private:
  std::vector<double> values_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SERIES_H_
