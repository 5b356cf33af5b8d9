// SPDX-License-Identifier: Apache-2.0
// SpikeDetector: tells when a loss jumps far above its recent level. A value; thread-compatible.
//
// A loss is high when it exceeds, with m the median of the last 50 losses and MAD the median of
// their distances from m,
//   m + max(1 nat, 10 MAD)
// (10 MAD are 6.7 standard deviations of normal noise: the losses of single short documents do not
// reach that by chance.) High losses in a row are one spike. They become the level of what follows,
// so that a loss that stays high is not a spike for ever.
#ifndef PLUMB_RUNTIME_APP_TRAIN_SPIKE_DETECTOR_H_
#define PLUMB_RUNTIME_APP_TRAIN_SPIKE_DETECTOR_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace plumb {

class SpikeDetector {
 public:
  static constexpr size_t kWindow = 50;
  static constexpr size_t kLeast = 20;  // losses without which nothing is high

  // The next loss, finite. Whether a spike begins with it. Allocates nothing.
  bool Add(double loss);

  bool is_high() const { return is_high_; }  // the last loss
  // The median of the losses before the last spike began.
  double level() const { return level_; }

  // The window, oldest first; a detector that is restored from it goes on to the same answers.
  std::vector<double> losses() const;
  // REQUIRES: at most kWindow losses.
  void Restore(absl::Span<const double> losses, bool is_high);

 private:
  bool IsHigh(double loss);

  std::array<double, kWindow> ring_ = {};
  size_t size_ = 0;
  size_t next_ = 0;  // where the next loss goes
  bool is_high_ = false;
  double level_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_SPIKE_DETECTOR_H_
