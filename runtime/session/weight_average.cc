// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/weight_average.h"

#include <algorithm>

#include "runtime/kernels/simd/optimizer.h"

namespace plumb {

WeightAverage::WeightAverage(const ModelContext& context, double decay,
                             const ParameterStore& weights)
    : weight_(static_cast<float>(1 - decay)), store_(context.parameters, context.states) {
  Update(weights, 1, 1);
}

int64_t WeightAverage::Elements(const ParameterStore& store) {
  return store.layout().size + store.states().size;
}

int64_t WeightAverage::Bytes(const ModelContext& context) {
  return (ParameterLayout(context.parameters).size + StateLayout(context.states).size) *
         SizeOf(DType::kF32);
}

void WeightAverage::Update(const ParameterStore& weights, int64_t step, int threads) {
  std::copy_n(weights.state_data(), store_.states().size, store_.state_data());
  for (size_t i = 0; i < store_.layout().entries.size(); ++i) {
    const ParameterLayout::Entry& entry = store_.layout().entries[i];
    const int64_t n = entry.end - entry.begin;
    float* const average = store_.floats(i);
    if (step == 1) {
      weights.Read(i, 0, n, average);
    } else if (weights.is_split(i)) {
      MoveTowards(weights.split(i), weight_, n, threads, average);
    } else {
      MoveTowards(weights.floats(i), weight_, n, threads, average);
    }
  }
}

}  // namespace plumb
