// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/training_preview.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/client/recipe.h"
#include "runtime/data/batches.h"
#include "runtime/train/run_identity.h"

namespace plumb {
namespace {

// Requires: `weights` are >= 0 and not all 0.
double Entropy(const std::vector<double>& weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  double entropy = 0;
  for (const double weight : weights) {
    if (weight > 0) entropy -= weight / total * std::log(weight / total);
  }
  return entropy;
}

// Adds the targets of a step, with a total weight of 1, since its loss is the mean over all of
// them.
absl::Status AddTargets(int64_t first_batch, int64_t batches,
                        const std::optional<TokenMasking>& masking, TrainBatches* source,
                        Batch* batch, std::vector<double>* weights) {
  std::vector<double> counts(weights->size());
  int64_t targets = 0;
  for (int64_t i = first_batch; i < first_batch + batches; ++i) {
    PLUMB_RETURN_IF_ERROR(source->TryFill(i, batch));
    if (masking.has_value()) MaskTokens(*masking, kTrainingMasks, i * batch->batch, batch);
    for (const int32_t target : batch->targets) {
      if (target >= 0) counts[static_cast<size_t>(target)] += 1;
    }
    targets += batch->valid_targets;
  }
  for (size_t t = 0; t < counts.size() && targets > 0; ++t) {
    (*weights)[t] += counts[t] / static_cast<double>(targets);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingPreview> PreviewTraining(const std::string& data_path,
                                                const std::string& train_path,
                                                const Overrides& train_overrides,
                                                DatasetCache* datasets) {
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides));
  PLUMB_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> data,
                         datasets->Load(data_path, recipe));
  TrainingPreview preview;
  preview.train_text = recipe.text;
  preview.max_steps = recipe.fields.max_steps();
  preview.data = data->Description();
  preview.data_advice = FormatAdvice(*data, recipe);
  preview.data_hash = data->data_hash();
  preview.tokenizer_hash = HashOfTokenizer(data->tokenizer());
  preview.vocab_size = NeededVocabulary(data->tokenizer(), recipe);
  preview.has_documents = HasDocuments(recipe);
  preview.has_validation = data->has_targets(Split::kValidation);
  return preview;
}

absl::StatusOr<std::vector<double>> UnigramEntropies(const std::string& data_path,
                                                     const std::string& train_path,
                                                     const Overrides& train_overrides,
                                                     int64_t context_length, int64_t steps,
                                                     const std::vector<uint64_t>& seeds,
                                                     DatasetCache* datasets) {
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides));
  PLUMB_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> data,
                         datasets->Load(data_path, recipe));
  const int64_t batches_per_step = recipe.fields.gradient_accumulation_steps();
  const int64_t end = recipe.fields.max_steps() * batches_per_step;
  const int64_t begin = std::max<int64_t>(0, end - steps * batches_per_step);
  TrainBatches::Options options;
  options.batch_size = recipe.fields.batch_size();
  options.micro_batches = batches_per_step;
  options.context_length = context_length;
  options.keep_order = recipe.fields.data().keep_order();
  api::ModelInfo model = {};
  model.vocab_size = NeededVocabulary(data->tokenizer(), recipe);  // no target depends on it
  std::optional<TokenMasking> masking = GetMasking(recipe, model);
  if (masking.has_value()) options.padding = -1;
  std::vector<double> entropies;
  for (const uint64_t seed : seeds) {
    options.seed = seed;
    if (masking.has_value()) masking->seed = seed;
    PLUMB_ASSIGN_OR_RETURN(TrainBatches source, TrainBatches::Create(data.get(), options));
    Batch batch = source.MakeBatch();
    std::vector<double> weights(static_cast<size_t>(data->tokenizer().vocab_size()));
    for (int64_t i = begin; i < end; i += batches_per_step) {
      PLUMB_RETURN_IF_ERROR(AddTargets(i, batches_per_step, masking, &source, &batch, &weights));
    }
    entropies.push_back(Entropy(weights));
  }
  return entropies;
}

}  // namespace plumb
