// SPDX-License-Identifier: Apache-2.0
// Messages about a value that is not finite: where in the model it first occurred. Stateless.
#ifndef PLUMB_RUNTIME_SESSION_DIVERGENCE_H_
#define PLUMB_RUNTIME_SESSION_DIVERGENCE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/compile/executable.h"

namespace plumb {

// Returns the place of a tensor, from its name: "layers.3.mlp.norm.out" is "layer 3, mlp, slot
// norm", "grad.layers.3.attention.q" is "backward pass, layer 3, attention". Returns "" for
// "logits", which is in no layer.
std::string GetPlace(absl::string_view tensor);

// Returns "layers.3.mlp.norm.out (layer 3, mlp, slot norm; op norm rms_norm(eps=1e-05)[16])".
std::string DescribeNonFinite(const Executable::NonFinite& found);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_DIVERGENCE_H_
