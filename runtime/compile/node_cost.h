// SPDX-License-Identifier: Apache-2.0
// The cost of a graph's nodes in FLOPs and bytes, for the times of Executable::RunAndTime. Pure.
#ifndef PLUMB_RUNTIME_COMPILE_NODE_COST_H_
#define PLUMB_RUNTIME_COMPILE_NODE_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

struct NodeTime {
  std::string op;
  std::string name;    // name of the first output: "layers.3.attention.q"
  double seconds = 0;  // filled in by the caller
  double flops = 0;    // OpDef::flops; 0: not counted
  int64_t bytes = 0;   // bytes of its operands; one read twice or written in place counts once
};

// Returns one per node, in the order of graph.nodes. Requires: the graph is verified.
std::vector<NodeTime> NodeCosts(const Graph& graph);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_NODE_COST_H_
