// SPDX-License-Identifier: Apache-2.0
// Random graphs of the test ops, and random values to feed them.
#ifndef PLUMB_TESTS_COMPILE_RANDOM_GRAPH_H_
#define PLUMB_TESTS_COMPILE_RANDOM_GRAPH_H_

#include <cstdint>

#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"
#include "tests/compile/reference_run.h"

namespace plumb {

struct RandomGraphOptions {
  int nodes = 20;
  bool states = true;           // nodes that update states in place
  int outputs = 3;              // max number besides the loss, of any values
  bool awkward_outputs = true;  // outputs that are leaves, or one value with two names
};

// Returns a verified graph with an output "loss" of type f32[1].
Graph RandomGraph(const OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options = {});

// Returns values around 1 for every parameter, input and state of f32; zeros for i32.
ReferenceTensors RandomFeeds(const Graph& graph, uint64_t seed);

}  // namespace plumb

#endif  // PLUMB_TESTS_COMPILE_RANDOM_GRAPH_H_
