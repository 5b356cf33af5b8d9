// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/loss_summary.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace plumb {

namespace {

std::optional<double> NumberIfAny(const nlohmann::json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number()) return std::nullopt;
  return member->get<double>();
}

}  // namespace

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
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) continue;
    const auto step = object.find("step");
    const std::optional<double> loss = NumberIfAny(object, "loss");
    if (step == object.end() || !step->is_number_integer() || !loss) continue;
    if (step->get<int64_t>() > last_step) break;
    Add(step->get<int64_t>(), *loss, NumberIfAny(object, "val_loss"));
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
