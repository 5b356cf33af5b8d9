// SPDX-License-Identifier: Apache-2.0
// GraphWeights: the parameters of a program's graph in the format in which they are stored, and the
// ops that read a matrix of any format. Thread-compatible; the builder is the caller's.
#ifndef PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_
#define PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/graph/builder.h"
#include "runtime/model/build.h"
#include "runtime/model/parameters.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Names under which layers that share parameters find them: a set of parameters bears the name of
// the first layer that uses it; values of the graph, caches and the statistics of norms are each
// layer's own. Stateless but for the model, which must outlive it.
class SharedLayers {
 public:
  explicit SharedLayers(const ResolvedModel& model) : model_(model) {}

  // What a parameter is called that were `name` if its layer shared none:
  // "layers.0.attention.q.weight" of "layers.3.attention.q.weight". A layer may share all but
  // parameters of norms and learned values, which are no weights.
  std::string NameOf(const std::string& name, bool is_weight) const;

 private:
  const ResolvedModel& model_;
};

class GraphWeights {
 public:
  // Declares `parameters` in `builder`, which must outlive this.
  GraphWeights(GraphBuilder* builder, const std::vector<ParameterSpec>& parameters,
               WeightFormat format, const SharedLayers& shared);

  // A parameter, or the scales of an int8 one, by its name, which is that of the place that uses it
  // even if layers share it. A missing one is a bug that the builder reports.
  ValueId Param(const std::string& name) const;

  // y = x W^T (+ bias), W [out, in]. f32_out: f32 from bf16 too.
  ValueId Matmul(ValueId x, const std::string& weight, ValueId bias, absl::string_view name,
                 bool f32_out = false) const;
  // The same with "<name>.weight" and, if `bias`, "<name>.bias".
  ValueId Linear(const std::string& name, ValueId x, bool bias) const;

  // The same of rows that are grouped by expert, with the matrix of each row's: "<name>.weight" is
  // [experts, out, in], "<name>.bias" [experts, out].
  ValueId ExpertLinear(const std::string& name, ValueId x, ValueId starts, bool bias) const;

  // The rows `ids`, counted from row `offset` on, of the table "<name>.weight".
  ValueId Embedding(const std::string& name, ValueId ids, bool f32_out = false,
                    int64_t offset = 0) const;

  WeightFormat format() const { return format_; }

 private:
  std::string NameOf(const std::string& name) const;

  GraphBuilder& b_;
  const WeightFormat format_;
  const SharedLayers shared_;
  absl::flat_hash_map<std::string, ValueId> parameters_;
  absl::flat_hash_map<std::string, Shape> int8_shapes_;  // of matrices, by name
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_GRAPH_WEIGHTS_H_
