// SPDX-License-Identifier: Apache-2.0
// The operands of a case as leaves of its graph. Private to the checks of op_test_util.h.
#ifndef PLUMB_TESTS_OPS_OP_OPERANDS_H_
#define PLUMB_TESTS_OPS_OP_OPERANDS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/graph/op.h"

namespace plumb {

std::string LeafName(size_t input);  // "in0"
std::map<std::string, ReferenceTensor> NamedLeaves(const std::vector<ReferenceTensor>& inputs);

ReferenceTensor Zeros(const TensorType& type);
// Returns true if the bits are the same: NaN equals NaN, 0 differs from -0.
bool Identical(const ReferenceTensor& a, const ReferenceTensor& b);

// Returns true if the op overwrites input i, which is then a state and has no gradient.
bool IsUpdated(const OpDef& op, size_t i);

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_OP_OPERANDS_H_
