// SPDX-License-Identifier: Apache-2.0
// Program: a graph of per-token ops that runs as one node, the op "program" (ops/program.cc).
//
// Its leaves are the node's inputs and its outputs the node's outputs, in order. The ops of the
// graph still define the computation: shapes, gradients and references. The kernel runs them on
// tiles of rows.
#ifndef PLUMB_RUNTIME_GRAPH_PROGRAM_H_
#define PLUMB_RUNTIME_GRAPH_PROGRAM_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/graph/attrs.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

// The attribute "graph" of the op "program". Immutable, thread-safe.
class ProgramAttr : public AttrObject {
 public:
  explicit ProgramAttr(Graph graph);

  const Graph& graph() const { return graph_; }
  // The leaves, in the order of the node's inputs.
  const std::vector<ValueId>& leaves() const { return leaves_; }
  // Returns true if the i-th leaf has rows: it has rank 2 or more and is not split into single
  // elements (as a learned vector with an index is).
  bool LeafHasRows(size_t i) const { return has_rows_[i]; }
  // Returns true if the program itself reads its k-th output: the other readers then contribute
  // only a part of the output's gradient.
  bool ReadsOutput(size_t k) const;

  // Returns the same program for inputs of other types. Errors: those of the ops' shape rules.
  absl::StatusOr<std::shared_ptr<const ProgramAttr>> WithInputs(
      absl::Span<const TensorType* const> inputs) const;

  // Prints the types of the leaves, the nodes and the outputs, without the names of values.
  std::string ToString() const override { return text_; }

  // The program of the gradients of some leaves. Its inputs are leaves and gradients of some
  // outputs, in this order.
  struct Gradient {
    std::shared_ptr<const ProgramAttr> program;
    std::vector<size_t> inputs;  // indices of leaves and given outputs, for the program's inputs
    std::vector<size_t> leaves;  // leaves whose gradients are the program's outputs
  };
  // Returns the gradient, which is built once for each choice of leaves and outputs. Errors: those
  // of the ops' gradients. Thread-safe.
  absl::StatusOr<Gradient> BuildGradient(const OpRegistry& registry,
                                         const std::vector<bool>& wanted_leaves,
                                         const std::vector<bool>& given_outputs) const;

 private:
  absl::StatusOr<Gradient> MakeGradient(const OpRegistry& registry,
                                        const std::vector<bool>& wanted_leaves,
                                        const std::vector<bool>& given_outputs) const;

  const Graph graph_;
  std::vector<ValueId> leaves_;
  std::vector<bool> has_rows_;  // indexed by leaf
  std::string text_;
  mutable std::mutex mutex_;
  // The key: wanted leaves and given outputs.
  mutable std::map<std::pair<std::vector<bool>, std::vector<bool>>, Gradient> gradients_;
};

// Returns the graph of a node whose op is "program".
const ProgramAttr& GetProgram(const Attrs& attrs);

// Returns the types of all values of a program whose inputs have the types `inputs`. Errors: those
// of the ops' shape rules.
absl::StatusOr<std::vector<TensorType>> InferProgram(const ProgramAttr& program,
                                                     absl::Span<const TensorType* const> inputs);

// Adds the program that computes the gradients of `node`, a program, and returns one id for each
// input, as OpDef::vjp does. It recomputes the program's own values that it needs.
std::vector<ValueId> AddProgramGradient(GraphBuilder& b, const Node& node,
                                        absl::Span<const ValueId> d_outputs,
                                        const std::vector<bool>& wanted);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_PROGRAM_H_
