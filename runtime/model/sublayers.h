// SPDX-License-Identifier: Apache-2.0
// Emits sublayers (attention, linear attention, MLPs, experts, convolutions) and the sums and
// functions of formulas as ops. Part of BuildForward (build.h). Stateless; all functions append to
// a builder.
#ifndef PLUMB_RUNTIME_MODEL_SUBLAYERS_H_
#define PLUMB_RUNTIME_MODEL_SUBLAYERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/graph/builder.h"
#include "runtime/model/graph_weights.h"
#include "runtime/spec/formula_backend.h"

namespace plumb {

// Environment in which a sublayer is emitted.
struct SublayerContext {
  const ResolvedModel* model;
  const GraphWeights* weights;
  GraphBuilder* b;
  int64_t batch;
  bool is_train, is_cached;            // kind of program
  bool counts_loads;                   // see BuildOptions
  ValueId positions;                   // i32[batch, seq]
  ValueId lengths;                     // i32[batch] in bidirectional models, else kNoValue
  std::vector<ValueId>* extra_losses;  // f32[1] each; training adds them to the loss
};

// Returns the attributes of op rope in the layer of `site`, or nullopt if it rotates nothing.
absl::StatusOr<std::optional<Attrs>> RopeAttrs(const PositionSpec& positions,
                                               const SublayerSite& site);

// Emits a sublayer. Requires: one input, or for attention also three: those of queries, keys and
// values.
absl::StatusOr<ValueId> EmitSublayer(const SublayerContext& context, const SublayerSite& site,
                                     absl::Span<const ValueId> inputs, AtPoint at_point);

// Emits the values of x `by` tokens before, and zeros before the first token: a convolution with
// constant weights, whose cache is "<name>.x_cache".
ValueId EmitShift(const SublayerContext& context, const std::string& name, ValueId x, int64_t by);

// Emits the sum of coefficient * tensor over `terms`, plus `constant`, broadcast.
ValueId EmitSum(GraphBuilder* b, absl::Span<const Term> terms, double constant,
                const std::string& name);

// Emits any function of interpret.h except part, shift and position. `scope` is the prefix of value
// names: "layers.3.".
ValueId EmitFunction(GraphBuilder* b, const Function& function,
                     absl::Span<const TensorHandle> operands, const std::string& scope);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_SUBLAYERS_H_
