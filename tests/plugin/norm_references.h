// SPDX-License-Identifier: Apache-2.0
// Independent implementations of the papers, in double and one row at a time, of the norms that
// ship with plumb and of the one in plugins/README.md.
#ifndef PLUMB_TESTS_PLUGIN_NORM_REFERENCES_H_
#define PLUMB_TESTS_PLUGIN_NORM_REFERENCES_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Returns the value of an attribute, or the default.
inline double Attr(const NormAttrs& attrs, const std::string& name, double otherwise) {
  const auto it = attrs.find(name);
  if (it == attrs.end()) return otherwise;
  const bool* flag = std::get_if<bool>(&it->second);
  return flag != nullptr ? *flag : std::get<double>(it->second);
}

// Returns the mean of (x[i] - from) ^ power over [begin, end).
inline double Moment(const std::vector<double>& x, size_t begin, size_t end, double from,
                     int power) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += std::pow(x[i] - from, power);
  return sum / static_cast<double>(end - begin);
}

// Returns one row's y, or an empty vector for a norm that has no reference.
inline std::vector<double> ReferenceRow(const std::string& id, const NormAttrs& attrs,
                                        const std::vector<double>& x,
                                        const std::vector<std::vector<double>>& params) {
  const size_t dim = x.size();
  const double n = static_cast<double>(dim);
  const double length = std::sqrt(n * Moment(x, 0, dim, 0, 2));
  const double mean = Moment(x, 0, dim, 0, 1);
  const double eps = Attr(attrs, "eps", 1e-5);
  const bool affine = Attr(attrs, "affine", 1) != 0;
  std::vector<double> y = x;
  const auto gain_and_bias = [&y, &params](bool bias) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] * params[0][i] + (bias ? params[1][i] : 0);
  };
  if (id == "layer_norm") {
    for (double& v : y) v = (v - mean) / std::sqrt(Moment(x, 0, dim, mean, 2) + eps);
    if (affine) gain_and_bias(Attr(attrs, "bias", 1) != 0);
  } else if (id == "group_norm") {
    const size_t size = dim / static_cast<size_t>(Attr(attrs, "groups", 1));
    for (size_t begin = 0; begin < dim; begin += size) {
      const double m = Moment(x, begin, begin + size, 0, 1);
      const double variance = Moment(x, begin, begin + size, m, 2);
      for (size_t i = begin; i < begin + size; ++i) y[i] = (x[i] - m) / std::sqrt(variance + eps);
    }
    if (affine) gain_and_bias(true);
  } else if (id == "std_norm") {
    const double lost = Attr(attrs, "unbiased", 1);
    const double sigma = std::sqrt(Moment(x, 0, dim, mean, 2) * n / (n - lost));
    for (double& v : y) v = (v - mean) / (sigma + Attr(attrs, "eps", 1e-6));
    gain_and_bias(true);
  } else if (id == "rms_norm") {
    for (double& v : y) v /= std::sqrt(Moment(x, 0, dim, 0, 2) + eps);
    if (affine) {
      const double offset = Attr(attrs, "unit_offset", 0);
      for (size_t i = 0; i < dim; ++i) y[i] *= offset + params[0][i];
    }
  } else if (id == "p_rms_norm") {
    const size_t k = static_cast<size_t>(std::ceil(Attr(attrs, "p", 0.0625) * n));
    for (double& v : y) v /= std::sqrt(Moment(x, 0, k, 0, 2) + eps);
    gain_and_bias(false);
  } else if (id == "dyt" || id == "derf") {
    const size_t weight = id == "dyt" ? 1 : 2, bias = weight + 1;  // after alpha, and shift
    for (size_t i = 0; i < dim; ++i) {
      const double z = params[0][0] * x[i];
      y[i] = id == "dyt" ? std::tanh(z) : std::erf(z + params[1][0]);
      if (affine) y[i] *= params[weight][i];
      if (affine && Attr(attrs, "bias", 1) != 0) y[i] += params[bias][i];
    }
  } else if (id == "scale_norm") {
    for (double& v : y) v *= params[0][0] / std::max(length, eps);
  } else if (id == "l2_norm") {
    for (double& v : y) v *= Attr(attrs, "scale", 1) / std::max(length, Attr(attrs, "eps", 0));
  } else if (id == "org.example.l2_norm") {
    for (double& v : y) v /= std::sqrt(length * length + 1e-6);
  } else if (id != "none") {
    y.clear();
  }
  return y;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_PLUGIN_NORM_REFERENCES_H_
