// SharedLayers: under which names layers that share parameters find them. Stateless but for the
// model, which must outlive it.
//
// A set of parameters bears the name of the first layer that uses it; values of the graph, caches
// and the statistics of norms are each layer's own.
#ifndef PLUMB_RUNTIME_MODEL_SHARED_LAYERS_H_
#define PLUMB_RUNTIME_MODEL_SHARED_LAYERS_H_

#include <cstdint>
#include <string>

#include "runtime/spec/resolved_model.h"

namespace plumb {

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

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_SHARED_LAYERS_H_
