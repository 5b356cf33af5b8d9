// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr double kTurn = 6.283185307179586476925;

absl::Status CheckPositive(const Attrs& attrs, const char* name) {
  const double value = attrs.GetDouble(name, 0);
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " = ", value, " is not a positive number"));
}

std::string ScalingOf(const Attrs& attrs) {
  return attrs.Has("scaling") ? attrs.GetString("scaling") : "";
}

// Returns the unscaled share: 1 keeps the frequency, 0 divides it by the factor.
double Llama3Share(const Attrs& attrs, double frequency) {
  const double turns = attrs.GetDouble("original_context") * frequency / kTurn;
  const double low = attrs.GetDouble("low_freq_factor"), high = attrs.GetDouble("high_freq_factor");
  return std::clamp((turns - low) / (high - low), 0.0, 1.0);
}

// The ramp of YaRN, over the index of a pair.
class YarnRamp {
 public:
  explicit YarnRamp(const Attrs& attrs) {
    const double dims = static_cast<double>(RotatedElements(attrs));
    low_ = IndexOf(attrs.GetDouble("beta_fast"), dims, attrs);
    high_ = IndexOf(attrs.GetDouble("beta_slow"), dims, attrs);
    if (!attrs.GetBool("fractional", false)) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, dims - 1);
    if (low_ == high_) high_ += 0.001;  // a step function
  }

  // Returns a share like Llama3Share.
  double Share(double i) const { return 1 - std::clamp((i - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  // Returns the index, between pairs, at which a pair turns `turns` times in the original context.
  static double IndexOf(double turns, double dims, const Attrs& attrs) {
    return dims * std::log(attrs.GetDouble("original_context") / (turns * kTurn)) /
           (2 * std::log(attrs.GetDouble("theta")));
  }

  double low_, high_;
};

}  // namespace

int64_t RotatedElements(const Attrs& attrs) {
  return attrs.GetInt(attrs.Has("dims") ? "dims" : "head_dim");
}

absl::Status CheckRopeAttrs(const Attrs& attrs) {
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "theta"));
  const std::string scaling = ScalingOf(attrs);
  if (scaling.empty()) return absl::OkStatus();
  if (scaling == "longrope") {
    const std::vector<double>& factors = attrs.GetDoubles("factors");
    const bool all_divide = std::all_of(factors.begin(), factors.end(), [](double factor) {
      return factor != 0 && std::isfinite(factor);
    });
    if (all_divide && static_cast<int64_t>(factors.size()) == RotatedElements(attrs) / 2) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("factors must have a finite number, not 0, for each pair");
  }
  if (scaling == "linear") {
    const double factor = attrs.GetDouble("factor", 0);
    if (factor != 0 && std::isfinite(factor)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("factor = ", factor, " must be finite and not 0"));
  }
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "factor"));
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "original_context"));
  const bool yarn = scaling == "yarn";
  if (!yarn && scaling != "llama3") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown scaling ", scaling, "; there are linear, llama3, yarn and longrope"));
  }
  const char* low = yarn ? "beta_slow" : "low_freq_factor";
  const char* high = yarn ? "beta_fast" : "high_freq_factor";
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, low));
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, high));
  if (attrs.GetDouble(low) >= attrs.GetDouble(high)) {
    return absl::InvalidArgumentError(absl::StrCat(low, " must be less than ", high));
  }
  if (yarn && attrs.GetDouble("theta") <= 1) {
    return absl::InvalidArgumentError("theta must be above 1 for yarn");
  }
  return absl::OkStatus();
}

std::vector<double> RopeFrequencies(const Attrs& attrs) {
  const std::string scaling = ScalingOf(attrs);
  const int64_t dims = RotatedElements(attrs);
  const double theta = attrs.GetDouble("theta");
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dims / 2; ++i) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  if (scaling.empty()) return frequencies;
  if (scaling == "longrope") {
    const std::vector<double>& factors = attrs.GetDoubles("factors");
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
    return frequencies;
  }
  const double factor = attrs.GetDouble("factor");
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    const double kept = scaling == "linear"   ? 0
                        : scaling == "llama3" ? Llama3Share(attrs, frequency)
                                              : YarnRamp(attrs).Share(static_cast<double>(i));
    frequency = kept * frequency + (1 - kept) * frequency / factor;
  }
  return frequencies;
}

}  // namespace plumb
