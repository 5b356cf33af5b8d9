// SPDX-License-Identifier: Apache-2.0
// Classes of norms in Python, which ship with plumb (plugins/pytorch) or have gaps for the user to
// fill in. Stateless. Internal to runtime/pytorch.
#ifndef PLUMB_RUNTIME_PYTORCH_NORMS_H_
#define PLUMB_RUNTIME_PYTORCH_NORMS_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Returns the marked call that makes the norm, with the attributes that are not the default:
// "RMSNorm(16, eps=1e-06)". Errors: kUnimplemented for a norm with statistics over tokens.
absl::StatusOr<std::string> MakeNorm(const NormPlugin& plugin, const NormAttrs& attrs, int64_t dim);

// Returns the text of the norm's class. That of a norm that does not ship with plumb has its
// parameters, and raises NotImplementedError in forward.
std::string NormClassText(const NormInstance& instance);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_NORMS_H_
