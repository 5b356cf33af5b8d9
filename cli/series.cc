// SPDX-License-Identifier: Apache-2.0
#include "cli/series.h"

#include <algorithm>
#include <cstddef>

namespace plumb::cli {

double Series::Quantile(double q) const {
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

Json Series::ToJson() const {
  return {{"median", Median()}, {"p10", Quantile(0.1)}, {"p90", Quantile(0.9)}};
}

}  // namespace plumb::cli
