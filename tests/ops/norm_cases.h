// SPDX-License-Identifier: Apache-2.0
// Norm instances for tests, from the shipped plugins of the build directory and from plugins linked
// into the tests; and the cases of the ops on norms.
#ifndef PLUMB_TESTS_OPS_NORM_CASES_H_
#define PLUMB_TESTS_OPS_NORM_CASES_H_

#include <memory>
#include <string>
#include <vector>

#include "runtime/ops/ops.h"
#include "tests/ops/op_cases.h"

namespace plumb {

// Returns the `instance` attribute of a norm op: the plugin with this id with attributes `attrs`,
// for rows of `dim`. Keeps its plugin alive.
std::shared_ptr<const NormAttr> MakeNormAttr(const std::string& id, int64_t dim,
                                             const NormAttrs& attrs = {}, int64_t heads = 0);

// Returns the cases of norm, add_norm, norm_grad and the cross-row norms (op_cases_norm.cc).
std::vector<OpCase> NormOpCases();

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_NORM_CASES_H_
