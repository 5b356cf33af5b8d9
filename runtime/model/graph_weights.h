// SPDX-License-Identifier: Apache-2.0
// GraphWeights: parameters of a program's graph in their storage format, and ops that read a matrix
// of any format. Thread-compatible. The caller owns the builder.
#ifndef PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_
#define PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/graph/builder.h"
#include "runtime/model/parameters.h"

namespace plumb {

class GraphWeights {
 public:
  // Declares `parameters` in `builder`, which must outlive this object.
  GraphWeights(GraphBuilder* builder, const std::vector<ParameterSpec>& parameters,
               WeightFormat format, const SharedLayers& shared);

  // Returns a parameter, or the scales of an int8 parameter. `name` refers to the place of use,
  // even if layers share the parameter. A missing parameter is a bug, which the builder reports.
  ValueId Param(const std::string& name) const;

  // Computes y = x W^T (+ bias) with W [out, in]. `f32_out`: y is f32 even if x is bf16.
  ValueId Matmul(ValueId x, const std::string& weight, ValueId bias, absl::string_view name,
                 bool f32_out = false) const;
  // Computes the same with "<name>.weight" and, if `bias`, "<name>.bias".
  ValueId Linear(const std::string& name, ValueId x, bool bias) const;

  // Computes the same for rows that are grouped by expert, each row with its expert's matrix.
  // "<name>.weight" is [experts, out, in], "<name>.bias" [experts, out].
  ValueId ExpertLinear(const std::string& name, ValueId x, ValueId starts, bool bias) const;

  // Looks up rows `ids` + `offset` of the table "<name>.weight".
  ValueId Embedding(const std::string& name, ValueId ids, bool f32_out = false,
                    int64_t offset = 0) const;

  WeightFormat format() const { return format_; }

 private:
  std::string GetName(const std::string& name) const;

  GraphBuilder& b_;
  const WeightFormat format_;
  const SharedLayers shared_;
  absl::flat_hash_map<std::string, ValueId> parameters_;
  absl::flat_hash_map<std::string, Shape> int8_shapes_;  // shapes of int8 matrices, keyed by name
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_
