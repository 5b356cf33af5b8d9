// SPDX-License-Identifier: Apache-2.0
// Runs single ops (kernels on f32, references and VJPs in double) and compares them.
#ifndef PLUMB_TESTS_OPS_OP_TEST_UTIL_H_
#define PLUMB_TESTS_OPS_OP_TEST_UTIL_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"
#include "tests/ops/op_cases.h"

namespace plumb {

// Returns the operands of a case. Floats are representable in f32, so that kernel and reference
// compute from the same numbers. An absent operand has an empty type.
std::vector<ReferenceTensor> MakeInputs(const OpCase& c);

// Returns the graph that applies the case's op to leaves "in0", "in1", .. and has outputs "out0",
// ... An input that the op overwrites is a state, and its new value is no output.
absl::StatusOr<Graph> BuildCase(const OpRegistry& registry, const OpCase& c);

// Runs the kernel of the graph's only node. Operands and results have the reference's types,
// converted for the kernel. Outputs that update an input share memory with it. alias >= 0 uses the
// op's may_alias[alias]. Fails the current test if the kernel writes outside of its outputs and
// scratch.
absl::StatusOr<std::vector<ReferenceTensor>> RunKernel(const Graph& graph,
                                                       const std::vector<ReferenceTensor>& inputs,
                                                       int threads, int alias = -1);

// Evaluates all values of a graph with the references; `leaves` by name. Indexed by value id.
absl::StatusOr<std::vector<ReferenceTensor>> RunReference(
    const Graph& graph, const std::map<std::string, ReferenceTensor>& leaves);

// Returns true if the case's op is token-wise in inputs that have at least two tokens here.
bool HasTokens(const OpRegistry& registry, const OpCase& c);

// Expectations on the case's op, which fail the current test. Checks that its kernel agrees with
// its reference, with the same bits for 1, 2 and 4 threads and for every aliasing that it allows.
void ExpectKernelMatchesReference(const OpRegistry& registry, const OpCase& c);
// Checks that it is token-wise in the inputs that OpDef::token_wise names: its reference on their
// last tokens computes the last tokens of its reference, to the bit. Passes if HasTokens is false.
void ExpectTokenWiseAsDeclared(const OpRegistry& registry, const OpCase& c);
// Checks that its VJP agrees with central differences of its reference. Passes for an op without a
// VJP.
void ExpectVjpMatchesDifferences(const OpRegistry& registry, const OpCase& c);

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_OP_TEST_UTIL_H_
