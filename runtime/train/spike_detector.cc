// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/spike_detector.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace plumb {
namespace {

constexpr double kMinJump = 1;  // in nats
constexpr double kMads = 10;

double ComputeMedian(std::array<double, SpikeDetector::kWindow>* values, size_t n) {
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(values->begin(), middle, values->begin() + static_cast<std::ptrdiff_t>(n));
  return *middle;
}

}  // namespace

bool SpikeDetector::Add(double loss) {
  const bool was_high = is_high_;
  is_high_ = IsHigh(loss);
  ring_[next_] = loss;
  next_ = (next_ + 1) % kWindow;
  size_ = std::min(size_ + 1, kWindow);
  return is_high_ && !was_high;
}

bool SpikeDetector::IsHigh(double loss) {
  if (size_ < kMin) return false;
  // Most losses return here without computing a median: a loss that exceeds the median by
  // kMinJump exceeds more than half of the window by that amount.
  size_t below = 0;
  for (size_t i = 0; i < size_; ++i) below += ring_[i] < loss - kMinJump ? 1 : 0;
  if (below <= size_ / 2) return false;
  std::array<double, kWindow> values = ring_;
  const double median = ComputeMedian(&values, size_);
  for (size_t i = 0; i < size_; ++i) values[i] = std::fabs(ring_[i] - median);
  if (loss <= median + std::max(kMinJump, kMads * ComputeMedian(&values, size_))) return false;
  if (!is_high_) level_ = median;
  return true;
}

std::vector<double> SpikeDetector::losses() const {
  std::vector<double> losses;
  for (size_t i = 0; i < size_; ++i) {
    losses.push_back(ring_[(next_ + kWindow - size_ + i) % kWindow]);
  }
  return losses;
}

void SpikeDetector::Restore(absl::Span<const double> losses, bool is_high) {
  PLUMB_CHECK(losses.size() <= kWindow, "the losses fit the window");
  size_ = losses.size();
  std::copy(losses.begin(), losses.end(), ring_.begin());
  next_ = size_ % kWindow;
  is_high_ = is_high;
}

}  // namespace plumb
