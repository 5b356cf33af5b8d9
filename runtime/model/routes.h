// SPDX-License-Identifier: Apache-2.0
// The gradient routes of a model's formulas: whether an identity route runs from embedding to head,
// and the Jacobian of each layer. Pure.
#ifndef PLUMB_RUNTIME_MODEL_ROUTES_H_
#define PLUMB_RUNTIME_MODEL_ROUTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// The route from the embedding to the head that passes no sublayer and the fewest norms.
struct IdentityRoute {
  bool exists = false;
  int64_t norms = 0;      // on the way, up to the last layer's output
  int64_t end_norms = 0;  // and after it, before the head
  double scale = 1;       // product of the constant coefficients on the way
  bool learned = false;   // a learned value multiplies it somewhere
  // Nothing on the way but additions, up to the last layer's output.
  bool clean() const { return exists && norms == 0 && scale == 1 && !learned; }
  std::string ToString() const;  // "clean (I)", "through 16 norms", "none"
};

struct Routes {
  IdentityRoute identity;
  std::vector<std::string>
      jacobians;           // dx_out/dx_in by layer: "(I + J_mlp J_norm) (I + J_attention J_norm)"
  int64_t norm_sites = 0;  // norms that are applied (identities left out)
};

absl::StatusOr<Routes> AnalyzeRoutes(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_ROUTES_H_
