// SPDX-License-Identifier: Apache-2.0
// Gradient routes of a model's formulas: the identity route from embedding to head, if there is
// one, and the Jacobian of each layer. Stateless.
#ifndef PLUMB_RUNTIME_MODEL_ROUTES_H_
#define PLUMB_RUNTIME_MODEL_ROUTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Route from the embedding to the head that passes no sublayer, the fewest norms, and of these the
// fewest scales.
struct IdentityRoute {
  bool exists = false;
  int64_t norms = 0;      // number of norms on the route up to the last layer's output
  int64_t end_norms = 0;  // number of norms after it, before the head
  double scale = 1;       // product of the constant coefficients on the route
  bool learned = false;   // true if a learned value multiplies the route
  // Returns true if the route contains only additions up to the last layer's output.
  bool clean() const { return exists && norms == 0 && scale == 1 && !learned; }
  std::string ToString() const;  // "clean (I)", "through 16 norms", "none"
};

struct Routes {
  IdentityRoute identity;
  // dx_out/dx_in of each layer: "(I + J_mlp J_norm) (I + J_attention J_norm)". J_f is the
  // derivative of f by one operand, D a diagonal matrix. If further streams carry the signal into
  // the layer or past it, they are constant in the formula and a remark follows it, or a sentence
  // replaces it.
  std::vector<std::string> jacobians;
  int64_t norm_sites = 0;  // number of applied norms, without identities
};

absl::StatusOr<Routes> AnalyzeRoutes(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_ROUTES_H_
