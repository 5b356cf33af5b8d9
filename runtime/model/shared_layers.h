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

  // Of weights of sublayers at the place `name`: "layers.0.attention" of "layers.3.attention".
  std::string WeightName(const std::string& name) const { return NameOf(name, false); }
  // Of parameters of norms, and of learned values.
  std::string NormName(const std::string& name) const { return NameOf(name, true); }

 private:
  std::string NameOf(const std::string& name, bool is_norm) const;

  const ResolvedModel& model_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_SHARED_LAYERS_H_
