// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/loss_summary.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/train/metrics.h"

namespace plumb {

void LossSummary::Add(int64_t step, double loss, std::optional<double> val_loss) {
  if (val_loss) validation_ = Validation{step, *val_loss};
  if (step <= 20) max_first_20_ = std::max(loss, max_first_20_.value_or(loss));
  if (step <= 50) {
    sum_first_50_ += loss;
    ++count_first_50_;
  }
  min_ = std::min(loss, min_.value_or(loss));
  last_100_.push_back(loss);
  if (last_100_.size() > kLastSteps) last_100_.pop_front();
}

void LossSummary::AddMetricsFile(const std::string& path, int64_t last_step) {
  const absl::StatusOr<std::vector<StepMetrics>> steps = ReadMetrics(path);
  if (!steps.ok()) return;
  for (const StepMetrics& metrics : *steps) {
    if (metrics.step > last_step) break;
    Add(metrics.step, metrics.loss, metrics.val_loss);
  }
}

std::optional<double> LossSummary::MeanOfLast100() const {
  if (last_100_.empty()) return std::nullopt;
  return std::accumulate(last_100_.begin(), last_100_.end(), 0.0) /
         static_cast<double>(last_100_.size());
}

std::optional<double> LossSummary::MeanOfFirst50() const {
  if (count_first_50_ == 0) return std::nullopt;
  return sum_first_50_ / static_cast<double>(count_first_50_);
}

}  // namespace plumb
