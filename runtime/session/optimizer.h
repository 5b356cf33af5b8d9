// SPDX-License-Identifier: Apache-2.0
// Optimizer: the updates of a model's parameters by a recipe: its rules with numbers, the clipping
// of gradients by groups, and the states of its updates. An update allocates nothing, and its
// results do not depend on the number of threads. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
#define PLUMB_RUNTIME_SESSION_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/formats/safetensors.h"
#include "runtime/kernels/simd/optimizer.h"
#include "runtime/model/update_plan.h"
#include "runtime/session/newton_schulz.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// What an optimizer will do and take, before it takes any memory.
struct OptimizerPlan {
  UpdatePlan updates;
  MuonSpec muon;
  std::unique_ptr<NewtonSchulz> newton_schulz;  // null: Muon updates nothing
  int64_t state_bytes = 0;
  int64_t scratch_bytes = 0;
};

// Errors: as PlanUpdates.
absl::StatusOr<OptimizerPlan> PlanOptimizer(const TrainSpec& spec, const ModelContext& context);

class Optimizer {
 public:
  // Of `parameters`, which must outlive it, as `store` lays them out. `owned`: those that this rank
  // updates, and has the states of; empty: all.
  Optimizer(const std::vector<ParameterSpec>& parameters, OptimizerPlan plan,
            const ParameterStore& store, std::vector<bool> owned = {});

  // Bytes of the states of those parameters.
  static int64_t StateBytes(const std::vector<ParameterSpec>& parameters, const OptimizerPlan& plan,
                            const std::vector<bool>& owned);

  // The memory that it takes, in bytes.
  int64_t state_bytes() const { return m_.size() + v_.size(); }
  int64_t scratch_bytes() const {
    return plan_.newton_schulz == nullptr ? 0 : plan_.newton_schulz->bytes();
  }

  struct Gradients {
    const float* values;  // in the layout of the parameters
    double norm;          // over all parameters
    // Sum of the squares of each parameter's gradient; null: not known yet.
    const double* squares = nullptr;
  };
  // Step `step`, 1 for the first, with the scheduled learning rate. kResourceExhausted where oneDNN
  // finds no memory in the middle of it: some parameters are updated then, and others not.
  absl::Status Update(const Gradients& gradients, double learning_rate, int64_t step,
                      const ParameterStore& store, int threads);

  // Gives the rows and columns of the recipe's `normalize` length 1, of all parameters: before the
  // first step; Update does so after each. Not of those whose f32 lie on another rank.
  void Normalize(const ParameterStore& store, int threads) const;

  // One of the states of a parameter.
  struct StateId {
    size_t parameter;
    bool is_second;  // of AdamW; else its first moment or Muon's momentum
  };
  // Whether some of the states lie on other ranks.
  bool is_sharded() const { return !owned_.empty(); }
  // In the order of Tensors().
  const std::vector<StateId>& states() const { return states_; }
  // Where it lies; null: on another rank.
  float* DataOf(const StateId& state) const;

  // States that lie on other ranks: elements [begin, begin + n), read or written.
  class Remote {
   public:
    virtual ~Remote() = default;
    virtual void Read(const StateId& state, int64_t begin, int64_t n, float* to) = 0;
    virtual void Write(const StateId& state, int64_t begin, int64_t n, const float* from) = 0;
  };
  // Must outlive this. REQUIRES: there is one before states of others are asked for.
  void SetRemote(Remote* remote) { remote_ = remote; }

  // The states for a file: "m.<parameter>", AdamW's first moment or Muon's momentum, and, of what
  // AdamW updates, "v.<parameter>". Those of other ranks are copied from there.
  std::vector<TensorToWrite> Tensors() const;
  // Copies them from a file. As ParameterLayout::Read; and the error that it would give.
  absl::Status Read(const SafetensorsFile& file) const;
  absl::Status Check(const SafetensorsFile& file) const;
  // Elements [begin, begin + n) of a state.
  void Write(const StateId& state, int64_t begin, int64_t n, const float* from) const;

  // A state of one parameter: its name in words, its elements.
  struct State {
    std::string what;
    const float* data;
    int64_t n;
  };
  std::vector<State> StatesOf(size_t parameter) const;  // none: they lie on another rank

  float* first_moments() const { return m_.as<float>(); }  // packed, of those it owns
  // The same of the parameters that AdamW updates, packed.
  float* second_moments() const { return v_.as<float>(); }

 private:
  // A matrix that Muon updates: a parameter, or one expert's part of it.
  struct Matrix {
    size_t parameter;
    int64_t offset;  // of its first element in the parameter
    Shape shape;
    float scale;  // of its learning rate
    size_t clip_group;
  };
  void AddSegment(size_t parameter, int64_t m_begin, int64_t v_begin, const ParameterStore& store);
  bool IsOwned(size_t parameter) const { return owned_.empty() || owned_[parameter]; }
  std::string NameOf(const StateId& state) const;
  void Normalize(size_t parameter, const ParameterStore& store, int threads) const;
  double ClipOf(size_t group, const Gradients& gradients) const;
  void SumSquares(const Gradients& gradients, int threads);
  absl::Status UpdateMatrices(const Gradients& gradients, double learning_rate,
                              const ParameterStore& store, int threads);

  const OptimizerPlan plan_;
  const ParameterLayout layout_;
  const std::vector<bool> owned_;
  std::vector<StateId> states_;
  std::vector<int64_t> m_begin_, v_begin_;  // by parameter, in elements; < 0: it is not here
  AlignedBuffer m_, v_;
  Remote* remote_ = nullptr;
  std::vector<AdamWSegment> segments_;
  std::vector<AdamWGroup> groups_;
  std::vector<size_t> clip_of_group_;  // of the plan's
  std::vector<Shape> one_;             // of a parameter, or of one expert's part of it
  std::vector<Matrix> matrices_;
  std::vector<double> squares_;  // of the gradients of each clip group; of one the caller knows it
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_OPTIMIZER_H_
