// SPDX-License-Identifier: Apache-2.0
// TrainSession: the training of one model: weights, gradients, optimizer state, and the executables
// of its step. A step allocates nothing once its length has been seen, and computes with denormals
// flushed to zero (runtime/base/float_mode.h), whatever the caller's mode, which it restores: so a
// moment of a row without gradients decays to zero and no further. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_
#define PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/data/batches.h"
#include "runtime/data/masked_tokens.h"
#include "runtime/ranks/communicator.h"
#include "runtime/session/batch_inputs.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/gradient_exchange.h"
#include "runtime/session/gradient_sums.h"
#include "runtime/session/optimizer.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"
#include "runtime/session/rank_states.h"
#include "runtime/session/rank_step.h"
#include "runtime/session/schedule.h"
#include "runtime/session/step_profile.h"
#include "runtime/session/train_memory.h"
#include "runtime/session/unit_tree.h"
#include "runtime/session/weight_average.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

struct StepResult {
  int64_t step = 0;  // 1 for the first
  double loss = 0;   // mean over the step's targets, before the update, in nats
  double learning_rate = 0;
  double grad_norm = 0;  // global, before clipping
  int64_t tokens = 0;    // targets
};

class TrainSession {
 public:
  using StoreMaker = absl::FunctionRef<absl::StatusOr<ParameterStore*>()>;

  // `context` and `dataset` must outlive the session. Weights are drawn from spec.seed. Compiles
  // the longest step. kResourceExhausted when this process has not the memory for it, before any is
  // taken.
  // `ranks` (null: this process alone), which must outlive the session: the job that trains
  // together, each rank its units of every step, to the same bits for any number of ranks. All of
  // them create the same session, on weights that are equal, and what is said to be collective all
  // of them call in the same order: Create, Step, ShareStates. An error of one is everyone's, "rank
  // 2 on host b: ..."; one of messages (kUnavailable) is the end of the job.
  static absl::StatusOr<std::unique_ptr<TrainSession>> Create(const ModelContext* context,
                                                              const Dataset* dataset,
                                                              const TrainSpec& spec, int threads,
                                                              Communicator* ranks = nullptr);
  // Trains the weights of `parameters`, called once a step is known to fit into memory: a store in
  // the form WeightFormatOf(spec), of OwnedWeights, which must outlive the session, as must
  // `context`; on `batches`
  // of spec.batch_size rows. What the recipe normalizes is normalized at once. `reserve`: bytes
  // that must fit into memory too.
  static absl::StatusOr<std::unique_ptr<TrainSession>> Create(
      const ModelContext* context, StoreMaker parameters, std::unique_ptr<BatchSource> batches,
      const TrainSpec& spec, int threads, int64_t reserve = 0, Communicator* ranks = nullptr);

  // The figures of one rank are those of its units alone; kFailedPrecondition where it has not the
  // gradients of all parameters (Shard::kGradients). Weights whose f32 lie on other ranks are told
  // by those, but of a step that diverges rounded to bf16.
  // From now on the points of `globs` (none: the default ones) are probed in step 1 and in every
  // `every`-th step; never when it is 0. The bits of losses and weights do not change. A step
  // that diverges is probed too.
  absl::Status SetProbe(int64_t every, absl::Span<const std::string> globs,
                        ProbeObserver observer = nullptr);

  // The figures of the last call of Step, if it was probed, else null.
  const ProbeResult* probe() const { return probed_ ? &probe_->result() : nullptr; }

  // From now on steps are timed, to the same bits, into `profile`, which must outlive them; null:
  // no more. A step that is probed counts as one stage.
  void SetProfile(StepProfile* profile) { profile_ = profile; }

  // From now on steps compute in the caller's floating-point mode: to measure the cost of
  // denormals. REQUIRES: no step was done.
  void KeepDenormals() { keeps_denormals_ = true; }

  // Collective. One optimizer step on the next batches of the data. kAborted when the loss or a
  // gradient is not finite: the message names the first bad tensor, its place in the model and the
  // op that made it. After any error weights, moments and norms' buffers are as they were before
  // the step; but when memory runs out in the middle of Muon's products, every later step and
  // CheckFinite fail too.
  absl::StatusOr<StepResult> Step();

  int64_t step() const { return step_; }  // steps done
  double NextLearningRate() const { return LearningRate(schedule_, step_) * learning_rate_scale_; }

  // kAborted when a weight, moment or buffer is not finite, which it may be after an update that
  // overflowed though its gradient was finite: the message names the first. Reads all of them.
  absl::Status CheckFinite() const;

  // Gradient of the last step's mean loss over its targets, before clipping, in the parameters'
  // layout. If has_all_gradients() is false, only what this rank owns is valid.
  const float* gradients() const { return sums_.sum(0); }
  bool has_all_gradients() const {
    return exchange_ == nullptr || spec_.shard != Shard::kGradients;
  }
  const ParameterStore& parameters() const { return parameters_; }

  // Collective: rank 0 calls `use`, the others do not and answer: in it all states of the job are
  // read and written as if they were all here (optimizer(), average(), parameters()), and what was
  // written, and the number of steps, all ranks have afterwards. Its error is everyone's. With one
  // rank it calls `use`.
  absl::Status ShareStates(absl::FunctionRef<absl::Status()> use);
  // Before states are read; before or after they were written. kFailedPrecondition where they lie
  // on several ranks, and this is not rank 0 in ShareStates.
  absl::Status CheckStatesAreHere() const;
  // Whether the f32 of a weight is on another rank alone.
  bool IsElsewhere(size_t weight) const { return !parameters_.is_here(weight); }
  void SetStatesWritten() {
    if (rank_states_ != nullptr) rank_states_->SetWritten();
  }
  // The states of the optimizer. To resume after a step: write weights and norms' buffers into
  // parameters(), read the states into it, and call ResumeAt.
  const Optimizer& optimizer() const { return optimizer_; }
  // The average of the weights, to be read and written like parameters(); null without ema_decay.
  const ParameterStore* average() const {
    return average_ == nullptr ? nullptr : &average_->store();
  }
  const float* first_moments() const { return optimizer_.first_moments(); }
  const float* second_moments() const { return optimizer_.second_moments(); }

  // The memory allocated by now: the workspace is that of the lengths seen so far.
  TrainMemory memory() const;
  // The memory of the longest step.
  const TrainMemory& planned_memory() const { return planned_memory_; }
  int64_t max_seq() const { return batches_->max_seq(); }  // tokens of its sequences

  // The parameters as the session's programs read them: all of them in place.
  const PackedWeights& weights() const { return weights_; }

  void ResumeAt(int64_t step) { step_ = step; }  // steps done

  // The schedule's learning rate is multiplied by this; 1 at first.
  void ScaleLearningRate(double scale) { learning_rate_scale_ = scale; }

 private:
  // What is there before any memory of a session's size is taken.
  struct Plan {
    ExecutableCache executables;
    TrainMemory memory;
    OptimizerPlan optimizer;
    BucketPlan buckets;         // of several ranks
    std::vector<size_t> order;  // in which they are sent
  };
  // With its errors those of all ranks.
  static absl::StatusOr<Plan> MakePlan(const ModelContext* context, const BatchSource& batches,
                                       const TrainSpec& spec, int64_t reserve, Communicator* ranks);
  static absl::StatusOr<Plan> MakeOwnPlan(const ModelContext* context, const BatchSource& batches,
                                          const TrainSpec& spec, int64_t reserve, int rank,
                                          int ranks);
  TrainSession(const ModelContext* context, const TrainSpec& spec, ParameterStore* parameters,
               std::unique_ptr<BatchSource> batches, Plan plan, int threads, Communicator* ranks);
  // What only its owners have normalized, to all.
  absl::Status ShareNormalized();
  absl::Status BindExecutable(Executable* executable) const;
  struct Unit {
    double loss;         // mean over its targets
    double grad_square;  // of the norm of its part of the step's gradient
    const Executable* executable;
  };
  // Rows of a micro-batch that are a unit.
  struct UnitIds {
    const int32_t* tokens;
    const int32_t* positions;
    absl::Span<const int32_t> targets;
    int64_t seq;
  };
  UnitIds IdsOf(int64_t unit) const;
  // Fills the micro-batches of this rank's units, and counts the targets of these units.
  absl::Status FillBatches();
  // Fills them on all ranks, and counts the targets of all units. Fails where the step has none.
  absl::Status BeginStep();
  // Part of the step that a unit is: its targets divided by those of the step.
  double ShareOf(int64_t unit) const {
    return static_cast<double>(targets_[static_cast<size_t>(unit)]) /
           static_cast<double>(step_targets_);
  }
  absl::StatusOr<const Executable*> ProgramOf(int64_t seq);
  // `sends`: gradients travel to other ranks as they are made.
  absl::Status RunProgram(const Executable& executable, bool sends);
  // Sets what the programs of a unit read besides weights. Returns the length of its sequences.
  int64_t SetInputs(int64_t unit);
  // Unit `unit` of the step.
  absl::StatusOr<Unit> RunUnit(int64_t unit, bool sends);
  // kAborted where it is not finite.
  absl::Status CheckUnit(const Unit& unit);
  double GradSquare() const;
  // True if the squares of the step's gradient are summed per parameter, after its units are added
  // up. A step of one unit has them from its pass.
  bool SumsSquaresByParameter() const { return spec_.num_units() > 1 || spec_.wire != DType::kF32; }
  absl::StatusOr<StepResult> TryStep();
  // This rank's units, and all of the step's: whose gradients are summed then.
  absl::Status RunUnits();
  absl::Status RunAllUnits();
  absl::Status FinishExchange();
  absl::Status Update(const StepResult& result);
  absl::Status EndProbe();
  void CopyStates(const float* from, float* to) const;
  absl::Status Diverged(absl::string_view what, const Executable* executable);

  const ModelContext* context_;
  TrainSpec spec_;
  ScheduleSpec schedule_;
  int threads_;
  int64_t step_ = 0;
  double learning_rate_scale_ = 1;

  std::unique_ptr<ParameterStore> own_parameters_;  // null: the caller's
  ParameterStore& parameters_;
  PackedWeights weights_;
  Communicator* const ranks_;  // null: one rank
  const UnitRange range_;      // of the step's units
  GradientSums sums_;
  // Of the step that is done. squares[0] is that of all parameters where a step has one unit.
  StepShare share_;
  std::unique_ptr<GradientExchange> exchange_;  // null: one rank
  std::map<const Executable*, std::vector<BucketPlan::Ready>> ready_;
  std::unique_ptr<RankStates> rank_states_;
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null: none is kept
  // The states of norms before the step and before the unit that runs.
  AlignedBuffer states_before_step_, states_before_unit_;

  std::unique_ptr<BatchSource> batches_;
  int64_t first_micro_batch_;            // number within the step of micro_batches_[0]
  std::vector<Batch> micro_batches_;     // of the step, those that this rank's units are parts of
  std::vector<int64_t> targets_;         // of each unit of the step
  int64_t step_targets_ = 0;             // their sum
  std::optional<TokenMasking> masking_;  // none: targets are the batches' own
  BatchInputs inputs_;
  AlignedBuffer random_, loss_, loss_weight_;
  AlignedBuffer grad_squares_;  // a cache line each parameter; empty: the program sums no squares
  ExecutableCache executables_;
  TrainMemory planned_memory_;

  StepProfile* profile_ = nullptr;  // null: off
  std::unique_ptr<Probe> probe_;    // null: off
  int64_t probe_every_ = 0;
  bool probed_ = false;  // the last step
  bool keeps_denormals_ = false;
  absl::Status half_done_;  // an update that was left in its middle
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_
