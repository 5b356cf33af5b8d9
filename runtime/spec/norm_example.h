// SPDX-License-Identifier: Apache-2.0
// Text with which a model uses a norm, for authors to paste. Stateless.
#ifndef PLUMB_RUNTIME_SPEC_NORM_EXAMPLE_H_
#define PLUMB_RUNTIME_SPEC_NORM_EXAMPLE_H_

#include <string>

#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Returns lines of a model that use the norm: norm { .. } with all attributes and their defaults,
// and a block. A required attribute has a value that its definition allows, and a comment names it.
std::string NormExample(const NormPlugin& plugin);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_NORM_EXAMPLE_H_
