// RunTrainer: a model that is trained on a file of data: its weights, the optimizer, its batches,
// and what is held out, over plumb.h. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_TRAINER_H_
#define PLUMB_RUNTIME_TOOLS_RUN_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/data/batches.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/model.h"
#include "runtime/tools/profile.h"
#include "runtime/tools/recipe.h"
#include "runtime/tools/split_loss.h"

namespace plumb {

// Thread-compatible. A step allocates nothing once its length has been seen.
class RunTrainer {
 public:
  // `model`, of the data's vocabulary, and `data` must outlive it. Weights are drawn from the
  // recipe's seed. `validates`: what is held out, if anything is, will be evaluated.
  // `ranks`, which must outlive it: of plumb_trainer_options. kResourceExhausted when this process
  // has not the memory for all of it, before any is taken.
  static absl::StatusOr<std::unique_ptr<RunTrainer>> Create(
      plumb_model* model, const Dataset* data, const Recipe& recipe, bool validates,
      const plumb_communicator* ranks = nullptr);

  // One optimizer step on batch `batch` of the data, from 1: of gradient_accumulation_steps
  // micro-batches. Errors: as plumb_trainer_step.
  absl::StatusOr<plumb_step_info> Step(int64_t batch);
  int64_t steps() const { return plumb_trainer_steps(trainer_.get()); }  // done

  bool validates() const { return validation_.has_value(); }
  // The loss of what is held out, or of its first `max_batches` batches when that is positive.
  // REQUIRES: validates().
  absl::StatusOr<double> ValidationLoss(int64_t max_batches);

  // The layer, or the embedding or the head, with the largest norm of the last step's gradients,
  // and its share of the square of the whole. No place where each rank has the gradients of some
  // parameters only. REQUIRES: a step was done, and none has failed since.
  struct GradientShare {
    std::string place;  // "layer 3", "head"
    double share = 0;
  };
  GradientShare LargestGradient() const;

  // From now on steps are timed op by op, to the same bits, and summed up in a new profile.
  void StartProfile();
  void StopProfile();
  Profile profile() const;  // since it was started last; of no steps unless it was

  // The memory of the longest step.
  TrainingMemory memory() const;
  plumb_trainer* get() const { return trainer_.get(); }

 private:
  struct Validation {
    EvalBatches batches;
    Batch batch;
    EvaluatorHandle evaluator;
    int64_t bytes = 0;
    std::optional<TokenMasking> masking;
  };
  RunTrainer(const Recipe& recipe, TrainBatches batches);
  absl::Status PlanValidation(plumb_model* model, const Dataset* data);
  plumb_evaluator_options EvaluatorOptions() const;
  void Profiles(bool on);
  static int32_t Fill(void* self, int64_t i, int32_t* inputs, int32_t* targets, int64_t* seq);

  Recipe recipe_;
  TrainBatches batches_;
  Batch batch_;
  int64_t filling_ = 0;  // the first micro-batch of the step that is being done
  absl::Status filled_;  // of its last micro-batch
  TrainerHandle trainer_;
  std::optional<Validation> validation_;
};

// Of micro-batches of `seq` tokens.
TrainingMemory ToPublic(const plumb_trainer_memory& memory, const Recipe& recipe, int64_t seq);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_TRAINER_H_
