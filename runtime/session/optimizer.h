// Optimizer: the updates of a model's parameters by a recipe: its rules with numbers, the clipping
// of gradients by groups, and the states of its updates. An update allocates nothing, and its
// results do not depend on the number of threads. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
#define PLUMB_RUNTIME_SESSION_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/io/safetensors.h"
#include "runtime/kernels/simd/optimizer.h"
#include "runtime/model/update_plan.h"
#include "runtime/session/parameter_store.h"

namespace plumb {

class Optimizer {
 public:
  // Of `parameters`, which must outlive it, as `store` lays them out.
  Optimizer(const std::vector<ParameterSpec>& parameters, UpdatePlan plan,
            const ParameterStore& store);

  // The memory that one takes, in bytes.
  static int64_t StateBytes(const std::vector<ParameterSpec>& parameters, const UpdatePlan& plan);
  int64_t state_bytes() const { return m_.size() + v_.size(); }

  struct Gradients {
    const float* sums;  // over micro-batches, in the layout of the parameters
    double mean;        // 1 / their number
    double norm;        // of the mean over all parameters
  };
  // Step `step`, 1 for the first, with the scheduled learning rate.
  void Update(const Gradients& gradients, double learning_rate, int64_t step,
              const ParameterStore& store, int threads);

  // The states for a file: "m.<parameter>", "v.<parameter>".
  std::vector<TensorToWrite> Tensors() const;
  // Copies them from a file. As ParameterLayout::Read; and the error that it would give.
  absl::Status Read(const SafetensorsFile& file) const;
  absl::Status Check(const SafetensorsFile& file) const;

  // A state of one parameter: its name in words, its elements.
  struct State {
    std::string what;
    const float* data;
    int64_t n;
  };
  std::vector<State> StatesOf(size_t parameter) const;

  float* first_moments() const { return m_.as<float>(); }   // in the layout of the parameters
  float* second_moments() const { return v_.as<float>(); }  // the same

 private:
  void SetGradScales(const Gradients& gradients, int threads);

  const UpdatePlan plan_;
  const ParameterLayout layout_;
  AlignedBuffer m_, v_;
  std::vector<AdamWSegment> segments_;
  std::vector<AdamWGroup> groups_;
  std::vector<size_t> clip_of_group_;  // of the plan's
  std::vector<double> squares_;        // of the gradients of each clip group
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
