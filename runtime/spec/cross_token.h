// SPDX-License-Identifier: Apache-2.0
// What is said of norms that take statistics over tokens (Norm.allow_cross_token). Private to
// runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_CROSS_TOKEN_H_
#define PLUMB_RUNTIME_SPEC_CROSS_TOKEN_H_

#include <string>

#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Why such a norm is refused unless it is allowed; ends where the way out is to be told.
std::string CrossTokenRefusal(const NormPlugin& plugin);

// What the permission comes to.
std::string CrossTokenWarning(const NormPlugin& plugin);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_CROSS_TOKEN_H_
