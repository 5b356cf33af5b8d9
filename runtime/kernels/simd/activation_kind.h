// SPDX-License-Identifier: Apache-2.0
// The scalar functions of the ops act and gated. Stateless.
//
//   relu       max(x, 0)
//   gelu       x Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016)
//   gelu_tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the same paper's approximation
//   silu       x sigmoid(x)
//   softplus   log(1 + e^x), computed as max(x, 0) + log(1 + e^-|x|)
//   tanh, sigmoid, erf
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_KIND_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_KIND_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

enum class ActivationKind { kRelu, kGelu, kGeluTanh, kSilu, kSoftplus, kTanh, kSigmoid, kErf };

bool IsActivation(absl::string_view name);

// Parses a name. Errors: kInvalidArgument with a suggestion.
absl::StatusOr<ActivationKind> ParseActivationKind(absl::string_view name);

// Reference implementations of a function and of its derivative (0 for relu at 0).
double ReferenceActivation(ActivationKind kind, double x);
double ReferenceActivationDerivative(ActivationKind kind, double x);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_ACTIVATION_KIND_H_
