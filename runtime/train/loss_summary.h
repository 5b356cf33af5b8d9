// SPDX-License-Identifier: Apache-2.0
// LossSummary: statistics of a run's losses, for the report at its end and for studies. A value.
#ifndef PLUMB_RUNTIME_TRAIN_LOSS_SUMMARY_H_
#define PLUMB_RUNTIME_TRAIN_LOSS_SUMMARY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace plumb {

class LossSummary {
 public:
  static constexpr int64_t kLastSteps = 100;  // number of steps in MeanOfLast100()

  struct Validation {
    int64_t step = 0;
    double loss = 0;
  };

  // Adds the losses of a step. Requires: steps count from 1 and come in order.
  void Add(int64_t step, double loss, std::optional<double> val_loss);
  // Adds the steps up to `last_step` of RUN/metrics.csv, for a run that is resumed. Adds nothing if
  // the file is damaged, because a summary does not justify an error.
  void AddMetricsFile(const std::string& path, int64_t last_step);

  // Return nullopt until such a step has been added. Means cover fewer steps if the run is shorter.
  std::optional<double> MeanOfLast100() const;
  std::optional<double> MeanOfFirst50() const;
  std::optional<double> MaxOfFirst20() const { return max_first_20_; }
  std::optional<double> Min() const { return min_; }
  std::optional<Validation> LastValidation() const { return validation_; }

 private:
  std::deque<double> last_100_;
  double sum_first_50_ = 0;
  int64_t count_first_50_ = 0;
  std::optional<double> max_first_20_, min_;
  std::optional<Validation> validation_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_LOSS_SUMMARY_H_
