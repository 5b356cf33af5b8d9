// SPDX-License-Identifier: Apache-2.0
// SpikeDetector: detects losses that jump far above their recent level. A value; thread-compatible.
//
// Let m be the median of the last 50 losses and MAD the median of their distances from m. A loss is
// high if it exceeds
//   m + max(1 nat, 10 MAD)
// (10 MAD are 6.7 standard deviations of normal noise; losses of single short documents do not
// reach that by chance.) Consecutive high losses are one spike. They enter the window, so that a
// loss that stays high is eventually no longer a spike.
#ifndef PLUMB_RUNTIME_TRAIN_SPIKE_DETECTOR_H_
#define PLUMB_RUNTIME_TRAIN_SPIKE_DETECTOR_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace plumb {

class SpikeDetector {
 public:
  static constexpr size_t kWindow = 50;
  static constexpr size_t kMin = 20;  // min number of losses before one can be high

  // Adds the next loss, which must be finite. Returns true if a spike begins with it. Does not
  // allocate.
  bool Add(double loss);

  bool is_high() const { return is_high_; }  // true if the last loss is high
  // Returns the median of the losses before the last spike.
  double level() const { return level_; }

  // Returns the window, oldest first. A detector restored from it behaves identically.
  std::vector<double> losses() const;
  // Requires: losses.size() <= kWindow.
  void Restore(absl::Span<const double> losses, bool is_high);

 private:
  bool IsHigh(double loss);

  std::array<double, kWindow> ring_ = {};
  size_t size_ = 0;
  size_t next_ = 0;  // index of the next loss
  bool is_high_ = false;
  double level_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_SPIKE_DETECTOR_H_
