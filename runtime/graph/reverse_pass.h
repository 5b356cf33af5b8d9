// SPDX-License-Identifier: Apache-2.0
// ReversePass: reverse-mode differentiation of a graph, node by node, from the ops' VJPs.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_GRAPH_REVERSE_PASS_H_
#define PLUMB_RUNTIME_GRAPH_REVERSE_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/graph.h"

namespace plumb {

class ReversePass {
 public:
  // A value and its gradient, or a part of it.
  struct Seed {
    ValueId value;
    ValueId gradient;
  };

  // Prepares a pass over `forward`. `wanted[id]` selects the leaves whose gradients are needed.
  // `builder` must contain the graph `forward`, and may contain more. Both must outlive the pass.
  ReversePass(const Graph& forward, std::vector<bool> wanted, GraphBuilder* builder);

  // Adds the nodes that turn the seeds into the gradients of the wanted leaves. Errors name the
  // node whose op has no gradient or a wrong one. Requires: called once.
  absl::Status Run(const std::vector<Seed>& seeds);

  // Returns the gradient of a value of `forward`, kNoValue if the seeds do not depend on it.
  ValueId gradient(ValueId id) const { return total_[Index(id)]; }

  // Returns the parts of a value's gradient, one per reader, in backward order; gradient() is their
  // sum.
  const std::vector<ValueId>& parts(ValueId id) const { return parts_[Index(id)]; }

 private:
  void FindPaths(const std::vector<Seed>& seeds);
  absl::Status Backward(const Node& node, int32_t index);
  void SumParts(ValueId id);

  const Graph& forward_;
  const std::vector<bool> wanted_;  // indexed by ValueId of `forward`, as are the following
  GraphBuilder& builder_;
  std::vector<bool> on_path_;          // values between a wanted leaf and a seed
  std::vector<int32_t> first_reader_;  // first node on a path that reads the value
  std::vector<std::vector<ValueId>> parts_;
  std::vector<ValueId> total_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_REVERSE_PASS_H_
