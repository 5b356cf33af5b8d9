// SPDX-License-Identifier: Apache-2.0
// TrainSession: the training of one model. Owns gradients, optimizer state and the executables of
// its step, and the weights unless the caller does. A step allocates nothing once its length has
// been seen. It computes with denormals flushed to zero (runtime/base/float_mode.h), so that
// moments of rows without gradients decay to zero, and then restores the caller's mode.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_
#define PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/data/batches.h"
#include "runtime/ops/host_loss.h"
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
  double grad_norm = 0;  // of all parameters that are not frozen, before clipping
  int64_t tokens = 0;    // targets of the step
};

// A unit of a step whose loss a host computes: rows of a micro-batch.
struct UnitLoss {
  int64_t step = 0;         // 1 for the first
  int64_t micro_batch = 0;  // index in the step
  int64_t first_row = 0;    // index in the micro-batch
  int64_t rows = 0, seq = 0;
  const int32_t* tokens = nullptr;   // [rows, seq]; -1: padding
  const int32_t* targets = nullptr;  // [rows, seq]
  const float* logits = nullptr;     // [rows, seq, vocabulary]
  float* gradient = nullptr;         // output, like logits: derivative of the loss; contains zeros
};
using UnitLossFunction = std::function<absl::StatusOr<double>(const UnitLoss& unit)>;

class TrainSession {
 public:
  using StoreMaker = absl::FunctionRef<absl::StatusOr<ParameterStore*>()>;

  // Creates a session with weights drawn from spec.seed, and compiles the longest step. `context`
  // and `dataset` must outlive the session. `ranks` (null: this process only), which must outlive
  // the session, is the job that trains together: each rank computes its units of every step, with
  // the same bits for any number of ranks. All ranks create the same session on equal weights, and
  // call the collective functions (Create, Step, ShareStates) in the same order. An error of one
  // rank is returned on all, as "rank 2 on host b: ..."; after a communication error (kUnavailable)
  // the job must end. Errors: kResourceExhausted, before any memory is allocated, if this process
  // has not enough.
  static absl::StatusOr<std::unique_ptr<TrainSession>> Create(const ModelContext* context,
                                                              const Dataset* dataset,
                                                              const TrainSpec& spec, int threads,
                                                              Communicator* ranks = nullptr);
  // Trains the weights of a store of the caller, on `batches` of spec.batch_size rows. `parameters`
  // is called once it is known that a step fits into memory. Its store has the form
  // GetWeightFormat(spec); the store and `context` must outlive the session. Parameters that the
  // recipe normalizes are normalized at once. `reserve`: bytes that must fit into memory too.
  // Errors: as above.
  static absl::StatusOr<std::unique_ptr<TrainSession>> Create(
      const ModelContext* context, StoreMaker parameters, std::unique_ptr<BatchSource> batches,
      const TrainSpec& spec, int threads, int64_t reserve = 0, Communicator* ranks = nullptr);

  // Enables probing: later steps measure the points of `globs` (none: the default ones) in step 1,
  // in every `every`-th step, and in a step that diverges; never if `every` is 0. The bits of
  // losses and weights do not change. A rank's statistics are those of its own units.
  absl::Status SetProbe(int64_t every, absl::Span<const std::string> globs,
                        ProbeObserver observer = nullptr);

  // Returns the statistics of the last step if it was probed, else null.
  const ProbeResult* probe() const { return probed_ ? &probe_->result() : nullptr; }

  // Sets the profile that later steps are timed into, with the same bits. It must outlive them;
  // null: no profile. A probed step counts as one stage.
  void SetProfile(StepProfile* profile) { profile_ = profile; }

  // Sets the function that returns the loss of a unit. The loss of a step is the sum over its
  // units. Requires: the spec has host_loss. Must precede the first step.
  void SetLoss(UnitLossFunction loss) { unit_loss_ = std::move(loss); }

  // Runs one optimizer step on the next batches of the data. Collective. Errors: kAborted if the
  // loss or a gradient is not finite; the message has the first such tensor, its place in the model
  // and its op. After an error weights, moments and norms' buffers are as before the step.
  // Exception: if oneDNN runs out of memory during Muon's products, every later step and
  // CheckFinite fail too.
  absl::StatusOr<StepResult> Step();

  int64_t step() const { return step_; }  // steps done
  double NextLearningRate() const { return LearningRate(schedule_, step_) * learning_rate_scale_; }

  // Reads all weights, moments and buffers. Errors: kAborted, with the name of the first tensor
  // that is not finite, which is possible if an update overflowed although its gradient was finite.
  absl::Status CheckFinite() const;

  // Gradient of the last step's mean loss over its targets, before clipping, in gradient_layout(),
  // where frozen parameters have no elements.
  const float* gradients() const { return sums_.sum(0); }
  const ParameterLayout& gradient_layout() const { return sums_.layout(); }
  const ParameterStore& parameters() const { return parameters_; }

  // Calls `use` on rank 0, which may write the states (optimizer(), average(), parameters()), and
  // sends all states and the number of steps to the other ranks. With one rank, just calls `use`.
  // Collective. Errors: that of `use`, on all ranks.
  absl::Status ShareStates(absl::FunctionRef<absl::Status()> use);
  // The states of the optimizer. To resume after a step, write weights and norms' buffers into
  // parameters(), read the states into it, and call ResumeAt.
  const Optimizer& optimizer() const { return optimizer_; }
  // The average of the weights, read and written like parameters(); null without ema_decay.
  const ParameterStore* average() const {
    return average_ == nullptr ? nullptr : &average_->store();
  }
  const float* first_moments() const { return optimizer_.first_moments(); }
  const float* second_moments() const { return optimizer_.second_moments(); }

  // Returns the memory allocated so far; the workspace is that of the lengths seen so far.
  TrainMemory memory() const;
  // Returns the memory of the longest step.
  const TrainMemory& planned_memory() const { return planned_memory_; }
  int64_t max_seq() const { return batches_->max_seq(); }  // max tokens of a sequence

  // The parameters as the session's programs read them, all of them in place.
  const PackedWeights& weights() const { return weights_; }

  void ResumeAt(int64_t step) { step_ = step; }  // number of completed steps

  // Sets the factor of the schedule's learning rate, 1 at first.
  void ScaleLearningRate(double scale) { learning_rate_scale_ = scale; }

 private:
  // Everything that is computed before large memory is allocated.
  struct Plan {
    ExecutableCache executables;
    TrainMemory memory;
    OptimizerPlan optimizer;
    BucketPlan buckets;         // for several ranks
    std::vector<size_t> order;  // in which buckets are sent
  };
  // Plans a session. Fails on all ranks if it fails on one.
  static absl::StatusOr<Plan> MakePlan(const ModelContext* context, const BatchSource& batches,
                                       const TrainSpec& spec, int64_t reserve, Communicator* ranks);
  static absl::StatusOr<Plan> MakeOwnPlan(const ModelContext* context, const BatchSource& batches,
                                          const TrainSpec& spec, int64_t reserve, int rank,
                                          int ranks);
  TrainSession(const ModelContext* context, const TrainSpec& spec, ParameterStore* parameters,
               std::unique_ptr<BatchSource> batches, Plan plan, int threads, Communicator* ranks);
  absl::Status BindExecutable(Executable* executable) const;
  struct Unit {
    double loss;         // mean over its targets
    double grad_square;  // squared norm of its part of the step's gradient
    const Executable* executable;
  };
  // The rows of a micro-batch that make up a unit.
  struct UnitIds {
    const int32_t* tokens;
    const int32_t* positions;
    absl::Span<const int32_t> targets;
    int64_t seq;
  };
  UnitIds GetUnitIds(int64_t unit) const;
  // Computes the loss of the current unit by unit_loss_.
  absl::StatusOr<double> ComputeHostLoss(const float* logits, float* gradient);
  // Fills the micro-batches of this rank's units, and counts these units' targets.
  absl::Status FillBatches();
  // Fills the batches of all ranks, and counts the targets of all units. Fails if there are none.
  absl::Status BeginStep();
  // Returns the unit's share of the step: its targets divided by those of the step.
  double ComputeShare(int64_t unit) const {
    return static_cast<double>(targets_[static_cast<size_t>(unit)]) /
           static_cast<double>(step_targets_);
  }
  // Returns the unit's factor in the sum over units that is the step's loss.
  double LossFactor(int64_t unit) const { return spec_.host_loss ? 1 : ComputeShare(unit); }
  absl::StatusOr<const Executable*> GetProgram(int64_t seq);
  // Runs a unit's program. If `sends`, gradients are sent to other ranks as they are computed.
  absl::Status RunProgram(const Executable& executable, bool sends);
  // Sets the inputs of a unit's program, besides weights. Returns the length of the unit's
  // sequences.
  int64_t SetInputs(int64_t unit);
  // Runs unit `unit` of the step.
  absl::StatusOr<Unit> RunUnit(int64_t unit, bool sends);
  // Fails with kAborted if the unit's loss or gradient is not finite.
  absl::Status CheckUnit(const Unit& unit);
  double GradSquare() const;
  // Returns true if the squares of the step's gradient are summed per parameter, after its units
  // are added up. The pass of a step with one unit sums them itself.
  bool SumsSquaresByParameter() const { return spec_.num_units() > 1; }
  absl::StatusOr<StepResult> TryStep();
  // Runs this rank's units, or those of all ranks, and sums their gradients.
  absl::Status RunUnits();
  absl::Status RunAllUnits();
  absl::Status FinishExchange();
  absl::Status Update(const StepResult& result);
  // Updates the corrections of routers by the loads of the step, and clears these.
  absl::Status UpdateCorrections();
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
  const UnitRange range_;      // this rank's units of a step
  GradientSums sums_;
  // Results of the current step. If a step has one unit, squares[0] is the sum over all parameters.
  StepShare share_;
  std::unique_ptr<GradientExchange> exchange_;  // null: one rank
  std::map<const Executable*, std::vector<BucketPlan::Ready>> ready_;
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null: not kept
  // Norm states from before the step and from before the current unit.
  AlignedBuffer states_before_step_, states_before_unit_;

  std::unique_ptr<BatchSource> batches_;
  int64_t first_micro_batch_;            // index in the step of micro_batches_[0]
  std::vector<Batch> micro_batches_;     // those that contain this rank's units
  std::vector<int64_t> targets_;         // indexed by unit of the step
  int64_t step_targets_ = 0;             // sum of targets_
  std::optional<TokenMasking> masking_;  // none: the batches have targets
  BatchInputs inputs_;
  AlignedBuffer random_, loss_, loss_weight_;
  UnitLossFunction unit_loss_;        // null: the program computes the loss
  const HostLoss host_loss_;          // calls ComputeHostLoss
  AlignedBuffer host_loss_function_;  // the program's operand for host_loss_
  double host_loss_value_ = 0;        // of the last unit; the program's is rounded to f32
  int64_t unit_ = 0;                  // the current unit
  AlignedBuffer grad_squares_;  // a cache line per parameter; empty: not summed by the program
  ExecutableCache executables_;
  TrainMemory planned_memory_;

  StepProfile* profile_ = nullptr;  // null: off
  std::unique_ptr<Probe> probe_;    // null: off
  int64_t probe_every_ = 0;
  bool probed_ = false;     // the last step was probed
  absl::Status half_done_;  // error of an update that failed halfway
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_TRAIN_SESSION_H_
