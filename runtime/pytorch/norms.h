// SPDX-License-Identifier: Apache-2.0
// Python code that ships with plumb and is embedded at build time: classes of norms
// (plugins/pytorch) and functions that code uses (helpers). Stateless. Internal to runtime/pytorch.
#ifndef PLUMB_RUNTIME_PYTORCH_NORMS_H_
#define PLUMB_RUNTIME_PYTORCH_NORMS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Returns the texts of the files, by folder and name without ".py": "pytorch/rms_norm" for the norm
// of this id, "helpers/rope" for a helper, "templates/class" for text with gaps.
std::map<std::string, std::string> PythonFiles();

// Returns the text of a file; "" if there is none.
std::string ShippedCode(const std::string& name);

// Returns the marked call that makes the norm, with the attributes that are not the default:
// "RMSNorm(16, eps=1e-06)". Errors: kUnimplemented for a norm with statistics over tokens.
absl::StatusOr<std::string> MakeNorm(const NormPlugin& plugin, const NormAttrs& attrs, int64_t dim);

// Returns the text of the norm's class. That of a norm that does not ship with plumb has its
// parameters, and raises NotImplementedError in forward.
std::string NormClassText(const NormInstance& instance);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_NORMS_H_
