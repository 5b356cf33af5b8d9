// SPDX-License-Identifier: Apache-2.0
// Recipe: how a model is trained (plumb.v1.Train), as plumb.h completes it. A value. Private to
// runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_RECIPE_H_
#define PLUMB_RUNTIME_APP_TRAIN_RECIPE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/v1/train.schema.h"
#include "runtime/app/model.h"
#include "runtime/app/plumb_api.h"
#include "runtime/data/batches.h"
#include "runtime/data/data.h"
#include "runtime/data/masked_tokens.h"

namespace plumb {

struct Recipe {
  // As plumb_recipe_text gives it: every field whose default is not zero is said.
  std::string text;
  v1::Train fields;  // of `text`
  // Places of fields in `text`, "12:3", and those that the file says, "train.pbtxt:4:1".
  std::map<std::string, std::string> places;
  int64_t chosen_units = 0;  // the units of `fields`, if they were chosen for ranks; else 0

  // plumb.h's errors of a model's recipe point into `text`, "recipe:12:3"; this, into the file.
  absl::Status InFile(const absl::Status& status) const;
};

// `text` in protobuf text format, then `settings` ("max_steps", "200") in order. `name` stands for
// the file in errors. Errors: as plumb_recipe_text.
absl::StatusOr<Recipe> ParseRecipe(absl::string_view text, const std::string& name,
                                   const Overrides& settings);

// The same of a file; "": the defaults. If the recipe leaves units open and has fewer micro-batches
// than there are ranks, units are chosen and become part of it, so that a run that keeps it can be
// resumed on any number of ranks.
absl::StatusOr<Recipe> ReadRecipe(const std::string& path, const Overrides& settings,
                                  int ranks = 1);

// Which of the two.
inline const char* DTypeOf(const Recipe& recipe) {
  return recipe.fields.dtype() == v1::Train::BF16 ? "bf16" : "f32";
}

DatasetOptions ToDatasetOptions(const Recipe& recipe);

// The batches that a model is trained on. Errors: kInvalidArgument for a bidirectional model whose
// recipe hides no tokens.
absl::StatusOr<TrainBatches> MakeTrainBatches(const Dataset* data, const Recipe& recipe,
                                              const api::ModelInfo& model);

// Sets vocab_size to the tokenizer's where the model leaves it out, and one more if the recipe
// hides tokens behind one of their own (masked_tokens without mask_token); one that is too small is
// an error, which names `data_path` and `model_path`.
absl::Status FitVocabulary(const Tokenizer& tokenizer, const Recipe& recipe,
                           const std::string& data_path, const std::string& model_path,
                           api::Spec* model);

// The masked tokens of a recipe, of a model's vocabulary; none where it has none.
std::optional<TokenMasking> MaskingOf(const Recipe& recipe, const api::ModelInfo& model);

// The plan of a trainer with this recipe, whose sequences have at most `seq` tokens.
TrainingMemory ToTrainingMemory(const api::TrainerMemory& memory, const Recipe& recipe,
                                int64_t seq);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_RECIPE_H_
