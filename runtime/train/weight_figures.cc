// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/weight_figures.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"

namespace plumb {
namespace {

// Number of elements that are summed side by side, which compilers turn into SIMD code.
constexpr int64_t kParts = 16;

float DotOfRow(const float* a, const float* b, int64_t n) {
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (int64_t j = 0; j < kParts; ++j) parts[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float part : parts) sum += part;
  return sum;
}

// Divides a vector by its length, which it returns.
double NormalizeVector(std::vector<float>* x) {
  double square = 0;
  for (const float e : *x) square += static_cast<double>(e) * static_cast<double>(e);
  const double length = std::sqrt(square);
  if (length > 0) {
    for (float& e : *x) e = static_cast<float>(static_cast<double>(e) / length);
  }
  return length;
}

// Removes a name. Returns true if the list had it.
bool RemoveName(const char* name, std::vector<std::string>* names) {
  const auto end = std::remove(names->begin(), names->end(), name);
  const bool had = end != names->end();
  names->erase(end, names->end());
  return had;
}

double RmsOfChange(const std::vector<float>& before, const std::vector<float>& after) {
  double square = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double change = static_cast<double>(after[i]) - static_cast<double>(before[i]);
    square += change * change;
  }
  return std::sqrt(square / static_cast<double>(before.size()));
}

LearnedRange GetRange(const std::vector<float>& values) {
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return {sum / static_cast<double>(values.size()), static_cast<double>(*min),
          static_cast<double>(*max)};
}

}  // namespace

double SpectralNorm(const float* matrix, int64_t rows, int64_t columns) {
  constexpr int kMaxIterations = 100;
  constexpr double kTolerance = 1e-6;
  std::vector<float> v(static_cast<size_t>(columns)), u(static_cast<size_t>(rows));
  // A vector that is orthogonal to the first singular vector would find another one: the fractions
  // of multiples of an irrational number have no structure in common with a matrix.
  for (size_t i = 0; i < v.size(); ++i) {
    const double multiple = 0.6180339887498949 * static_cast<double>(i + 1);
    v[i] = static_cast<float>(multiple - std::floor(multiple) - 0.4);
  }
  NormalizeVector(&v);
  double norm = 0;
  for (int iteration = 0; iteration < kMaxIterations; ++iteration) {
    for (int64_t r = 0; r < rows; ++r) {
      u[static_cast<size_t>(r)] = DotOfRow(matrix + r * columns, v.data(), columns);
    }
    const double last = norm;
    norm = NormalizeVector(&u);
    if (std::abs(norm - last) <= kTolerance * norm) break;
    std::fill(v.begin(), v.end(), 0.0F);
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = u[static_cast<size_t>(r)];
      const float* const row = matrix + r * columns;
      for (int64_t c = 0; c < columns; ++c) v[static_cast<size_t>(c)] += factor * row[c];
    }
    NormalizeVector(&v);
  }
  return norm;
}

absl::StatusOr<WeightFigures> WeightFigures::Create(const api::Model& model,
                                                    std::vector<std::string>* points) {
  WeightFigures figures;
  figures.updates_ = RemoveName("updates", points);
  figures.spectral_ = RemoveName("spectral", points);
  figures.gates_ = RemoveName("gates", points);
  if (!figures.any()) return figures;
  const bool has_parameters =
      std::any_of(points->begin(), points->end(), [](const std::string& point) {
        return point == "default" || absl::StartsWith(point, "param.");
      });
  if (!has_parameters) points->emplace_back("param.*");
  PLUMB_ASSIGN_OR_RETURN(const auto description, DescribeModel(model));
  for (const auto& tensor : description["tensors"]) {
    if (tensor["role"] == "learned") {
      figures.learned_values_.insert(tensor["name"].get<std::string>());
    }
  }
  return figures;
}

absl::Status WeightFigures::BeginStep(api::Trainer* trainer) {
  if (weights_.empty()) {
    for (;;) {  // until there are no more
      const auto tensor = trainer->StateTensor(api::State::kModel, weights_.size());
      if (!tensor.ok()) break;
      Weight weight;
      int64_t elements = 1;
      for (const int64_t size : tensor->shape) elements *= size;
      if (tensor->rank == 2 || tensor->rank == 3) {
        const auto rank = static_cast<size_t>(tensor->rank);
        weight.rows = tensor->shape[rank - 2];
        weight.columns = tensor->shape[rank - 1];
        weight.count = elements / (weight.rows * weight.columns);
      }
      weight.before.resize(static_cast<size_t>(elements));
      const std::string name(tensor->name);
      weight.is_learned_value = learned_values_.contains(name);
      index_.emplace(name, weights_.size());
      weights_.push_back(std::move(weight));
    }
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    std::vector<float>& before = weights_[i].before;
    PLUMB_RETURN_IF_ERROR(
        ToStatus(trainer->ReadState(api::State::kModel, i, 0, {before.data(), before.size()})));
  }
  return absl::OkStatus();
}

absl::Status WeightFigures::Add(api::Trainer* trainer, ProbeFigures* figures) {
  for (ProbedParameter& parameter : figures->parameters) {
    const auto at = index_.find(parameter.name);
    if (at == index_.end()) continue;
    const size_t i = at->second;
    const Weight& weight = weights_[i];
    if (updates_) {
      after_.resize(weight.before.size());
      PLUMB_RETURN_IF_ERROR(
          ToStatus(trainer->ReadState(api::State::kModel, i, 0, {after_.data(), after_.size()})));
      const double change = RmsOfChange(weight.before, after_);
      parameter.update_rms = change;
      parameter.update_ratio.reset();
      if (parameter.value.rms > 0) parameter.update_ratio = change / parameter.value.rms;
    }
    if (spectral_ && weight.rows > 0) {
      double norm = 0;
      for (int64_t m = 0; m < weight.count; ++m) {
        norm = std::max(norm, SpectralNorm(weight.before.data() + m * weight.rows * weight.columns,
                                           weight.rows, weight.columns));
      }
      parameter.spectral_norm = norm;
    }
    if (gates_ && weight.is_learned_value) parameter.learned = GetRange(weight.before);
  }
  return absl::OkStatus();
}

}  // namespace plumb
