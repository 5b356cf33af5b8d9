// SPDX-License-Identifier: Apache-2.0
// Optimizer: applies a recipe's updates to a model's parameters, clips gradients by groups, and
// owns the states of the updates. An update allocates nothing, and its results do not depend on the
// number of threads. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
#define PLUMB_RUNTIME_SESSION_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/formats/safetensors.h"
#include "runtime/kernels/simd/optimizer.h"
#include "runtime/model/update_plan.h"
#include "runtime/session/newton_schulz.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Updates and memory of an optimizer, planned before any memory is allocated.
struct OptimizerPlan {
  UpdatePlan updates;
  MuonSpec muon;
  std::unique_ptr<NewtonSchulz> newton_schulz;  // null: Muon updates no parameter
  int64_t state_bytes = 0;
  int64_t scratch_bytes = 0;
};

// Plans an optimizer. Errors: as PlanUpdates.
absl::StatusOr<OptimizerPlan> PlanOptimizer(const TrainSpec& spec, const ModelContext& context);

class Optimizer {
 public:
  // Creates an optimizer of `parameters`, the weights of `store`, which must outlive it.
  Optimizer(const std::vector<ParameterSpec>& parameters, OptimizerPlan plan,
            const ParameterStore& store);

  const std::vector<std::string>& frozen() const { return plan_.updates.frozen; }

  // Allocated bytes.
  int64_t state_bytes() const { return m_.size() + v_.size(); }
  int64_t scratch_bytes() const {
    return plan_.newton_schulz == nullptr ? 0 : plan_.newton_schulz->bytes();
  }

  struct Gradients {
    const float* values;  // in the layout of the parameters, without the frozen ones
    double norm;          // over all of them
    // Sum of squares of each parameter's gradient; null: not computed yet.
    const double* squares = nullptr;
  };
  // Applies step `step`, 1 for the first, with the scheduled learning rate. Errors:
  // kResourceExhausted if oneDNN runs out of memory; some parameters are updated then.
  absl::Status Update(const Gradients& gradients, double learning_rate, int64_t step,
                      const ParameterStore& store, int threads);

  // Normalizes the rows and columns that the recipe's `normalize` selects to length 1. Call it
  // before the first step; Update normalizes after each.
  void Normalize(const ParameterStore& store, int threads) const;

  // Returns the states for a file: "m.<parameter>", AdamW's first moment or Muon's momentum, and,
  // for parameters that AdamW updates, "v.<parameter>". Frozen parameters have none.
  std::vector<TensorToWrite> Tensors() const;
  // Copies the states from a file, or returns the error of doing so. Errors: as
  // ParameterLayout::Read.
  absl::Status Read(const SafetensorsFile& file) const;
  absl::Status Check(const SafetensorsFile& file) const;
  // Returns the memory of all states.
  std::vector<absl::Span<std::byte>> Storage() const;

  // A state of one parameter: its name for messages, and its elements.
  struct State {
    std::string what;
    const float* data;
    int64_t n;
  };
  std::vector<State> GetStates(size_t parameter) const;  // empty if frozen

  float* first_moments() const { return m_.as<float>(); }  // in the layout of the gradients
  // Packed second moments of the parameters that AdamW updates.
  float* second_moments() const { return v_.as<float>(); }

 private:
  // One of the states of a parameter.
  struct StateId {
    size_t parameter;
    bool is_second;  // AdamW's second moment; else its first, or Muon's momentum
  };
  // A matrix that Muon updates: a parameter, or one expert's part of it.
  struct Matrix {
    size_t parameter;
    int64_t offset;  // offset of its first element in the parameter
    Shape shape;
    float scale;  // factor of its learning rate
    size_t clip_group;
  };
  void AddSegment(size_t parameter, const ParameterStore& store);
  std::string GetName(const StateId& state) const;
  float* GetData(const StateId& state) const;
  void Normalize(size_t parameter, const ParameterStore& store, int threads) const;
  double ComputeClip(size_t group, const Gradients& gradients) const;
  void SumSquares(const Gradients& gradients, int threads);
  absl::Status UpdateMatrices(const Gradients& gradients, double learning_rate,
                              const ParameterStore& store, int threads);

  const OptimizerPlan plan_;
  const ParameterLayout layout_;
  std::vector<StateId> states_;   // in the order of Tensors()
  std::vector<int64_t> v_begin_;  // indexed by parameter, in elements of v_; < 0: none
  AlignedBuffer m_, v_;
  std::vector<AdamWSegment> segments_;
  std::vector<AdamWGroup> groups_;
  std::vector<size_t> clip_of_group_;  // clip group of each group
  std::vector<Shape> one_;  // indexed by parameter: its shape, or that of one expert's part
  std::vector<Matrix> matrices_;
  std::vector<double> squares_;  // indexed by clip group; not computed if there is one group, whose
                                 // norm the caller passes
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
