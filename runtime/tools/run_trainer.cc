#include "runtime/tools/run_trainer.h"
#include "runtime/tools/run_profile.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/tools/split_loss.h"

namespace plumb {
namespace {

// "layer 3" of "layers.3.mlp.up.weight", else the first of its names.
std::string LayerOf(absl::string_view tensor) {
  const std::vector<absl::string_view> names = absl::StrSplit(tensor, '.');
  return names.size() > 1 && names[0] == "layers" ? absl::StrCat("layer ", names[1])
                                                  : std::string(names[0]);
}

double SumOfSquares(const plumb_tensor& tensor) {
  int64_t n = 1;
  for (const int64_t size : tensor.shape) n *= size;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(tensor.data[i]) * static_cast<double>(tensor.data[i]);
  }
  return sum;
}

}  // namespace

RunTrainer::RunTrainer(const Recipe& recipe, TrainBatches batches)
    : recipe_(recipe), batches_(std::move(batches)), batch_(batches_.MakeBatch()) {}

absl::StatusOr<std::unique_ptr<RunTrainer>> RunTrainer::Create(plumb_model* model,
                                                               const Dataset* data,
                                                               const Recipe& recipe, bool validates,
                                                               const plumb_communicator* ranks) {
  auto info = Sized<plumb_model_info>();
  plumb_model_get_info(model, &info);
  TrainBatches::Options options;
  options.batch_size = recipe.fields.batch_size();
  options.micro_batches = recipe.fields.gradient_accumulation_steps();
  options.context_length = info.context_length;
  options.seed = recipe.fields.seed();
  options.keep_order = recipe.fields.data().keep_order();
  options.padding = info.bidirectional != 0 ? -1 : 0;
  if (info.bidirectional != 0 && !recipe.fields.has_masked_tokens()) {
    return absl::InvalidArgumentError(
        "the model is bidirectional: a token sees the next one, so that nothing is learned from "
        "predicting it; write masked_tokens {} into the recipe to train it to fill gaps");
  }
  PLUMB_ASSIGN_OR_RETURN(TrainBatches batches, TrainBatches::Create(data, options));
  auto made = std::unique_ptr<RunTrainer>(new RunTrainer(recipe, std::move(batches)));
  plumb_trainer_options of_trainer = ToTrainerOptions(made->recipe_);
  of_trainer.seq = made->batches_.max_seq();
  of_trainer.draw_weights = 1;
  of_trainer.communicator = ranks;
  if (validates && data->has_targets(Split::kValidation)) {
    PLUMB_RETURN_IF_ERROR(made->PlanValidation(model, data));
    of_trainer.reserve = made->validation_->bytes;
  }
  absl::StatusOr<TrainerHandle> trainer =
      MakeHandle<TrainerHandle>(plumb_trainer_create, model, &of_trainer);
  if (!trainer.ok()) return recipe.InFile(trainer.status());
  made->trainer_ = *std::move(trainer);
  if (made->validates()) {
    const plumb_evaluator_options of_evaluator = made->EvaluatorOptions();
    PLUMB_ASSIGN_OR_RETURN(
        made->validation_->evaluator,
        MakeHandle<EvaluatorHandle>(plumb_evaluator_create, model, &of_evaluator));
  }
  return made;
}

absl::Status RunTrainer::PlanValidation(plumb_model* model, const Dataset* data) {
  auto info = Sized<plumb_model_info>();
  plumb_model_get_info(model, &info);
  EvalBatches::Options options;
  options.batch_size = recipe_.fields.batch_size();
  options.context_length = info.context_length;
  options.padding = info.bidirectional != 0 ? -1 : 0;
  PLUMB_ASSIGN_OR_RETURN(EvalBatches batches,
                         EvalBatches::Create(data, Split::kValidation, options));
  Batch batch = batches.MakeBatch();
  validation_.emplace(
      Validation{std::move(batches), std::move(batch), nullptr, 0, MaskingOf(recipe_, info)});
  const plumb_evaluator_options of_evaluator = EvaluatorOptions();
  return CallPlumb(plumb_evaluator_plan, model, &of_evaluator, &validation_->bytes);
}

// In the format that is trained, so that the weights are read where they lie.
plumb_evaluator_options RunTrainer::EvaluatorOptions() const {
  plumb_evaluator_options options = ToEvaluatorOptions(validation_->batches);
  options.weights =
      recipe_.fields.dtype() == v1::Train::BF16 ? PLUMB_WEIGHTS_BF16 : PLUMB_WEIGHTS_F32;
  return options;
}

int32_t RunTrainer::Fill(void* self, int64_t i, int32_t* inputs, int32_t* targets, int64_t* seq) {
  auto* const run = static_cast<RunTrainer*>(self);
  Batch& batch = run->batch_;
  run->filled_ = run->batches_.TryFill(run->filling_ + i, &batch);
  if (!run->filled_.ok()) return 1;
  std::copy(batch.tokens.begin(), batch.tokens.end(), inputs);
  std::copy(batch.targets.begin(), batch.targets.end(), targets);
  *seq = batch.seq;
  return 0;
}

absl::StatusOr<plumb_step_info> RunTrainer::Step(int64_t batch) {
  filling_ = (batch - 1) * recipe_.fields.gradient_accumulation_steps();
  auto info = Sized<plumb_step_info>();
  const absl::Status stepped = CallPlumb(plumb_trainer_step_filled, trainer_.get(),
                                         &RunTrainer::Fill, static_cast<void*>(this), &info);
  PLUMB_RETURN_IF_ERROR(filled_);  // rather than that the callback failed
  PLUMB_RETURN_IF_ERROR(stepped);
  return info;
}

absl::StatusOr<double> RunTrainer::ValidationLoss(int64_t max_batches) {
  Validation& own = *validation_;
  PLUMB_ASSIGN_OR_RETURN(const SplitLoss loss, MeasureLoss(own.batches, max_batches, own.masking,
                                                           own.evaluator.get(), &own.batch));
  return loss.loss;
}

RunTrainer::GradientShare RunTrainer::LargestGradient() const {
  std::vector<GradientShare>
      places;  // in the order of the parameters; share holds squares until their sum is known
  double sum = 0;
  auto gradient = Sized<plumb_tensor>();
  for (size_t i = 0; plumb_trainer_gradient(trainer_.get(), i, &gradient, nullptr) == PLUMB_OK;
       ++i) {
    std::string place = LayerOf(gradient.name);
    if (places.empty() || places.back().place != place) places.push_back({std::move(place), 0});
    const double square = SumOfSquares(gradient);
    places.back().share += square;
    sum += square;
  }
  if (places.empty()) return {};
  GradientShare largest = *std::max_element(
      places.begin(), places.end(),
      [](const GradientShare& a, const GradientShare& b) { return a.share < b.share; });
  if (sum > 0) largest.share /= sum;
  return largest;
}

void RunTrainer::StartProfile() { Profiles(true); }
void RunTrainer::StopProfile() { Profiles(false); }

void RunTrainer::Profiles(bool on) {
  const plumb_status status = plumb_trainer_profile(trainer_.get(), on ? 1 : 0, nullptr);
  PLUMB_CHECK(status == PLUMB_OK, "no step is being done");
}

Profile RunTrainer::profile() const {
  return ReadProfile(plumb_trainer_profile_row, trainer_.get());
}

TrainingMemory RunTrainer::memory() const {
  auto planned = Sized<plumb_trainer_memory>();
  plumb_trainer_get_memory(trainer_.get(), &planned);
  TrainingMemory memory = ToPublic(planned, recipe_, batches_.max_seq());
  if (validates()) memory.validation = validation_->bytes;
  memory.total += memory.validation;
  return memory;
}

TrainingMemory ToPublic(const plumb_trainer_memory& memory, const Recipe& recipe, int64_t seq) {
  TrainingMemory out;
  const int64_t micro_batches = recipe.fields.gradient_accumulation_steps();
  const int64_t units = recipe.fields.units() == 0 ? micro_batches : recipe.fields.units();
  out.batch = recipe.fields.batch_size() * micro_batches / units;
  out.seq = seq;
  out.dtype = DTypeOf(recipe);
  out.recompute_blocks = recipe.fields.recompute() == v1::Train::BLOCK;
  out.weights = memory.weights;
  out.gradients = memory.gradients;
  out.exchange = memory.exchange;
  out.moments = memory.moments;
  out.norm_states = memory.norm_states;
  out.inputs = memory.inputs;
  out.workspace = memory.workspace;
  out.total = memory.total;
  return out;
}

}  // namespace plumb
