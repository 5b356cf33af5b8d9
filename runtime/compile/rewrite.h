// SPDX-License-Identifier: Apache-2.0
// Analyses and edits of graphs that several passes share. Pure; private to the module.
#ifndef PLUMB_RUNTIME_COMPILE_REWRITE_H_
#define PLUMB_RUNTIME_COMPILE_REWRITE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

// Returns the types of values, null for kNoValue.
std::vector<const TensorType*> GetTypes(const Graph& graph, const std::vector<ValueId>& ids);

// Returns, by ValueId, the state whose memory the value shares because nodes wrote it in place
// (OpDef::updates): the value itself for a state, kNoValue for other values.
std::vector<ValueId> StateOfValues(const Graph& graph);

// Returns, by ValueId, the positions of the nodes that read the value, each once, in order.
std::vector<std::vector<int32_t>> FindReaders(const Graph& graph);

// Returns, by ValueId, true if a node overwrites the value in place. Its readers must precede that
// node.
std::vector<bool> OverwrittenValues(const Graph& graph);

// Returns, by ValueId, true if the value is an output.
std::vector<bool> OutputValues(const Graph& graph);

// The passes of optimize.h.
absl::StatusOr<Graph> FormPrograms(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> NarrowToLastToken(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> MergeCombines(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> MergeCommonValues(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> AccumulateEmbeddings(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> FuseActivations(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> SumProducts(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> ShareOperands(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> RecomputeBlocks(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> FuseResidualNorms(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> DropDeadValues(Graph graph, const OpRegistry& registry);
absl::StatusOr<Graph> GradientNorms(Graph graph, const OpRegistry& registry);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_REWRITE_H_
