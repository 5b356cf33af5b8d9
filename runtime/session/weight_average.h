// SPDX-License-Identifier: Apache-2.0
// WeightAverage: an exponential moving average of a model's weights over training steps, in a store
// of its own, which evaluates and samples like any other. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_WEIGHT_AVERAGE_H_
#define PLUMB_RUNTIME_SESSION_WEIGHT_AVERAGE_H_

#include <cstdint>

#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"

namespace plumb {

class WeightAverage {
 public:
  // Begins as a copy of `weights`, a store of the context's model.
  WeightAverage(const ModelContext& context, double decay, const ParameterStore& weights);

  static int64_t Bytes(const ModelContext& context);
  int64_t bytes() const { return Elements(store_) * SizeOf(DType::kF32); }

  // Updates after step `step`, 1 for the first: average = decay * average + (1 - decay) * weights.
  // After step 1 the average equals the weights (as PyTorch's AveragedModel). The buffers of norms
  // are averages already and are copied. Allocates nothing.
  void Update(const ParameterStore& weights, int64_t step, int threads);

  const ParameterStore& store() const { return store_; }

 private:
  static int64_t Elements(const ParameterStore& store);

  const float weight_;  // 1 - decay
  ParameterStore store_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_WEIGHT_AVERAGE_H_
