// SPDX-License-Identifier: Apache-2.0
// The oracle: runs a graph op by op with the naive references, in double. Slow and simple; every
// fast path is compared with it.
#ifndef PLUMB_TESTS_COMPILE_REFERENCE_RUN_H_
#define PLUMB_TESTS_COMPILE_REFERENCE_RUN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

using ReferenceTensors = std::map<std::string, ReferenceTensor>;

// Runs a graph. `feeds` has every parameter, input and state by name. Returns every output by name,
// and updated states under their own names.
absl::StatusOr<ReferenceTensors> ReferenceRun(const Graph& graph, const ReferenceTensors& feeds);

}  // namespace plumb

#endif  // PLUMB_TESTS_COMPILE_REFERENCE_RUN_H_
