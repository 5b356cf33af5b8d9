// SPDX-License-Identifier: Apache-2.0
// LossSummary: the summary of a run's losses at its end. A value.
#ifndef PLUMB_CLI_LOSS_SUMMARY_H_
#define PLUMB_CLI_LOSS_SUMMARY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace plumb::cli {

class LossSummary {
 public:
  struct Validation {
    int64_t step = 0;
    double loss = 0;
  };

  // The losses of a step, counted from 1; in order.
  void Add(int64_t step, double loss, std::optional<double> val_loss);
  // The steps up to `last_step` that RUN/metrics.jsonl has, for a run that is resumed. Lines that
  // tell nothing are passed over: a summary is not worth an error.
  void AddMetricsFile(const std::string& path, int64_t last_step);

  // Absent while no such step was added.
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

}  // namespace plumb::cli

#endif  // PLUMB_CLI_LOSS_SUMMARY_H_
