// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/axis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/app/figure/number_text.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

constexpr double kMaxMagnitude = 1e100;
// Ranges that are narrower than this share of their values are one value. On a log axis it is the
// difference of logarithms.
constexpr double kMinRelativeRange = 1e-9;
constexpr double kMaxTicks = 40;
constexpr double kMaxLinearDecades = 1.2;  // of a log axis with ticks at equal distances

// Distances between ticks, and between labels, in points.
constexpr double kMinTickDistance[] = {30, 20};  // horizontal, vertical
constexpr double kMinLabelGap = 5;

// Returns the multiples of `step` between low and high.
std::vector<double> Multiples(double step, double low, double high) {
  std::vector<double> values;
  const double slack = 1e-9 * (high - low) / step;
  const double first = std::ceil(low / step - slack), last = std::floor(high / step + slack);
  const auto count = static_cast<int>(last - first);
  for (int i = 0; i <= count; ++i) values.push_back((first + i) * step + 0.0);  // + 0.0: no -0
  return values;
}

}  // namespace

bool FigureAxis::CanShow(double value) const {
  if (!std::isfinite(value) || std::abs(value) > kMaxMagnitude) return false;
  return scale_ == AxisScale::kLinear || value >= 1 / kMaxMagnitude;
}

double FigureAxis::Scaled(double value) const {
  return scale_ == AxisScale::kLinear ? value : std::log10(value);
}

double FigureAxis::Unscaled(double scaled) const {
  return scale_ == AxisScale::kLinear ? scaled : std::pow(10, scaled);
}

void FigureAxis::Include(double value) {
  if (!CanShow(value)) return;
  is_empty_ = false;
  low_ = std::min(low_, Scaled(value));
  high_ = std::max(high_, Scaled(value));
}

void FigureAxis::LimitHigh(double value) {
  if (is_empty_ || !CanShow(value) || Scaled(value) <= low_) return;
  high_ = std::min(high_, Scaled(value));
}

void FigureAxis::AddMargin(double share) {
  if (is_empty_) {
    low_ = 0;
    high_ = 1;
    return;
  }
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const double unit = scale_ == AxisScale::kLog10 ? 1 : largest;
  const double span = high_ - low_;
  // Values below 1e-90 and zero also look the same on a linear axis.
  if (span > kMinRelativeRange * unit && span > 1e-90) {
    low_ -= share * span;
    high_ += share * span;
    return;
  }
  const double around = scale_ == AxisScale::kLog10 ? 0.5 : largest > 1e-90 ? 0.1 * largest : 1;
  low_ -= around;
  high_ += around;
}

double FigureAxis::Share(double value) const { return (Scaled(value) - low_) / (high_ - low_); }

// Returns sets of round values in the range.
std::vector<std::vector<double>> FigureAxis::TickCandidates() const {
  std::vector<std::vector<double>> candidates;
  if (scale_ == AxisScale::kLog10) {
    const auto first = static_cast<int>(std::floor(low_));
    const auto last = static_cast<int>(std::ceil(high_));
    const std::vector<std::vector<double>> factors = {{1, 2, 3, 5}, {1, 2, 5}, {1, 3}};
    for (const std::vector<double>& factor : factors) {
      candidates.emplace_back();
      for (int exponent = first; exponent <= last; ++exponent) {
        for (const double f : factor) candidates.back().push_back(f * std::pow(10, exponent));
      }
    }
    for (const double step : {1, 2, 3, 5, 10, 20, 50, 100}) {
      candidates.emplace_back();
      for (const double exponent : Multiples(step, low_, high_)) {
        candidates.back().push_back(std::pow(10, exponent));
      }
    }
  }
  if (scale_ == AxisScale::kLinear || high_ - low_ < kMaxLinearDecades) {
    const double low = Unscaled(low_), high = Unscaled(high_);
    const int start = static_cast<int>(std::floor(std::log10(high - low))) - 2;
    for (int exponent = start; exponent <= start + 3; ++exponent) {
      for (const double factor : {1, 2, 5}) {
        const double step = factor * std::pow(10, exponent);
        if ((high - low) / step <= kMaxTicks) candidates.push_back(Multiples(step, low, high));
      }
    }
  }
  for (std::vector<double>& values : candidates) {
    values.erase(std::remove_if(values.begin(), values.end(),
                                [&](double value) {
                                  const double share = Share(value);
                                  return share < -1e-9 || share > 1 + 1e-9;
                                }),
                 values.end());
  }
  return candidates;
}

std::vector<AxisTick> FigureAxis::Ticks(AxisDirection direction, const AxisRoom& room,
                                        double size) const {
  const bool is_horizontal = direction == AxisDirection::kHorizontal;
  std::vector<AxisTick> densest;
  for (const std::vector<double>& values : TickCandidates()) {
    if (static_cast<double>(values.size()) > kMaxTicks) continue;
    const std::vector<std::string> labels = TickLabels(values, scale_ == AxisScale::kLinear);
    std::vector<AxisTick> ticks;
    bool fits = true;
    double last_end = -std::numeric_limits<double>::infinity(), last_position = last_end;
    for (size_t i = 0; i < values.size() && fits; ++i) {
      const double position = Share(values[i]) * room.length;
      const double half = (is_horizontal ? TextWidth(labels[i], size) : size) / 2;
      // A label at an end of the axis that leaves the room is dropped; its neighbors may still fit.
      if (position - half < -room.before || position + half > room.length + room.after) continue;
      fits = position - half >= last_end + kMinLabelGap &&
             position - last_position >= kMinTickDistance[is_horizontal ? 0 : 1];
      last_end = position + half;
      last_position = position;
      ticks.push_back({values[i], labels[i]});
    }
    if (fits && ticks.size() > densest.size()) densest = std::move(ticks);
  }
  return densest;
}

}  // namespace plumb
