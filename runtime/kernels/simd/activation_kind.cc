// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/activation_kind.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"

namespace plumb {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;          // sqrt(1/2)
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;     // sqrt(2/pi)
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;  // 1/sqrt(2 pi)
constexpr double kTwoInverseSqrtPi = 1.12837916709551257390;  // 2/sqrt(pi)
constexpr double kCubic = 0.044715;

constexpr struct {
  const char* name;
  ActivationKind kind;
} kKinds[] = {
    {"relu", ActivationKind::kRelu},          {"gelu", ActivationKind::kGelu},
    {"gelu_tanh", ActivationKind::kGeluTanh}, {"silu", ActivationKind::kSilu},
    {"softplus", ActivationKind::kSoftplus},  {"tanh", ActivationKind::kTanh},
    {"sigmoid", ActivationKind::kSigmoid},    {"erf", ActivationKind::kErf},
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Returns 2u, where gelu_tanh(x) = x/2 (1 + tanh(u)) = x sigmoid(2u). The last form has no
// cancellation for x < 0.
double TwiceInner(double x) { return 2 * kSqrtTwoOverPi * (x + kCubic * x * x * x); }

}  // namespace

bool IsActivation(absl::string_view name) {
  return absl::c_any_of(kKinds, [name](const auto& entry) { return name == entry.name; });
}

absl::StatusOr<ActivationKind> ParseActivationKind(absl::string_view name) {
  std::vector<std::string> known;
  for (const auto& entry : kKinds) {
    if (name == entry.name) return entry.kind;
    known.push_back(entry.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown activation \"", name, "\"", DidYouMean(name, known)));
}

double ReferenceActivation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return x > 0 ? x : 0;
    case ActivationKind::kGelu:
      return x * 0.5 * std::erfc(-x * kSqrtHalf);
    case ActivationKind::kGeluTanh:
      return x * Sigmoid(TwiceInner(x));
    case ActivationKind::kSilu:
      return x * Sigmoid(x);
    case ActivationKind::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kSigmoid:
      return Sigmoid(x);
    case ActivationKind::kErf:
      return std::erf(x);
  }
  return 0;
}

double ReferenceActivationDerivative(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return x > 0 ? 1 : 0;
    case ActivationKind::kGelu:
      return 0.5 * std::erfc(-x * kSqrtHalf) + x * kInverseSqrtTwoPi * std::exp(-0.5 * x * x);
    case ActivationKind::kGeluTanh: {
      const double u = TwiceInner(x);
      const double du = 2 * kSqrtTwoOverPi * (1 + 3 * kCubic * x * x);
      return Sigmoid(u) + x * Sigmoid(u) * Sigmoid(-u) * du;
    }
    case ActivationKind::kSilu:
      return Sigmoid(x) + x * Sigmoid(x) * Sigmoid(-x);
    case ActivationKind::kSoftplus:
      return Sigmoid(x);
    case ActivationKind::kTanh:
      return 1 - std::tanh(x) * std::tanh(x);
    case ActivationKind::kSigmoid:
      return Sigmoid(x) * Sigmoid(-x);
    case ActivationKind::kErf:
      return kTwoInverseSqrtPi * std::exp(-x * x);
  }
  return 0;
}

}  // namespace plumb
