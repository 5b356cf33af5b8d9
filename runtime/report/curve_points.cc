// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/curve_points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace plumb {
namespace {

// Returns the mean of the finite losses of the steps first + 1 ... last; NaN without any.
double MeanOfSteps(const std::vector<double>& losses, int64_t first, int64_t last) {
  double sum = 0;
  int64_t n = 0;
  for (int64_t step = first; step < std::min<int64_t>(last, losses.size()); ++step) {
    const double loss = losses[static_cast<size_t>(step)];
    if (!std::isfinite(loss)) continue;
    sum += loss;
    ++n;
  }
  return n > 0 ? sum / static_cast<double>(n) : std::numeric_limits<double>::quiet_NaN();
}

// Loss of a block of more than one step that is furthest from the mean of its block.
struct Extreme {
  double distance = 0;
  int64_t step = 0, block_begin = 0;
};

// Returns the extreme of the block of the steps begin + 1 ... end; distance 0 if all are equal.
Extreme FindExtreme(const std::vector<const std::vector<double>*>& losses, int64_t begin,
                    int64_t end) {
  Extreme extreme = {0, 0, begin};
  for (const std::vector<double>* run : losses) {
    const double mean = MeanOfSteps(*run, begin, end);
    for (int64_t step = begin; step < std::min<int64_t>(end, run->size()); ++step) {
      const double distance = std::abs((*run)[static_cast<size_t>(step)] - mean);
      if (distance > extreme.distance) extreme = {distance, step + 1, begin};
    }
  }
  return extreme;
}

}  // namespace

int64_t CurvePoints(size_t runs) {
  constexpr int64_t kAllPoints = 1000000;
  return std::clamp(kAllPoints / std::max<int64_t>(1, static_cast<int64_t>(runs)), kMinCurvePoints,
                    kMaxCurvePoints);
}

std::vector<int64_t> BlockEnds(const std::vector<const std::vector<double>*>& losses,
                               int64_t points) {
  int64_t steps = 0;
  for (const std::vector<double>* run : losses) {
    steps = std::max(steps, static_cast<int64_t>(run->size()));
  }
  std::vector<int64_t> ends;
  if (steps <= points) {
    for (int64_t step = 1; step <= steps; ++step) ends.push_back(step);
    return ends;
  }
  const int64_t first = points / 5, last = 2 * points / 5, extremes = points / 20;
  // An extreme divides a block into up to three.
  const int64_t blocks = points - first - last - 2 * extremes;
  const int64_t length = (steps - first - last + blocks - 1) / blocks;
  std::vector<Extreme> found;
  for (int64_t step = 1; step <= first; ++step) ends.push_back(step);
  for (int64_t begin = first; begin < steps - last; begin += length) {
    const int64_t end = std::min(begin + length, steps - last);
    ends.push_back(end);
    if (end - begin > 1) found.push_back(FindExtreme(losses, begin, end));
  }
  for (int64_t step = steps - last + 1; step <= steps; ++step) ends.push_back(step);
  std::stable_sort(found.begin(), found.end(),
                   [](const Extreme& a, const Extreme& b) { return a.distance > b.distance; });
  if (found.size() > static_cast<size_t>(extremes)) found.resize(static_cast<size_t>(extremes));
  for (const Extreme& extreme : found) {
    if (extreme.distance == 0) continue;
    ends.push_back(extreme.step);
    if (extreme.step - 1 > extreme.block_begin) ends.push_back(extreme.step - 1);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

std::vector<double> BlockMeans(const std::vector<double>& losses,
                               const std::vector<int64_t>& ends) {
  std::vector<double> means;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (begin >= static_cast<int64_t>(losses.size())) break;
    means.push_back(MeanOfSteps(losses, begin, end));
    begin = end;
  }
  return means;
}

std::vector<double> BlockExtremes(const std::vector<const std::vector<double>*>& losses,
                                  const std::vector<int64_t>& ends) {
  std::vector<double> extremes;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    std::vector<double> means;
    for (int64_t step = begin; step < end && end - begin > 1; ++step) {
      double sum = 0;
      int n = 0;
      for (const std::vector<double>* run : losses) {
        if (step >= static_cast<int64_t>(run->size())) continue;
        const double loss = (*run)[static_cast<size_t>(step)];
        if (!std::isfinite(loss)) continue;
        sum += loss;
        ++n;
      }
      if (n > 0) means.push_back(sum / n);
    }
    if (end - begin > 1) {
      auto [low, high] = std::minmax_element(means.begin(), means.end());
      if (high < low) std::swap(low, high);
      const double nan = std::numeric_limits<double>::quiet_NaN();
      extremes.push_back(means.empty() ? nan : *low);
      extremes.push_back(means.empty() ? nan : *high);
    }
    begin = end;
  }
  return extremes;
}

}  // namespace plumb
