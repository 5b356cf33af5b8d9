// SPDX-License-Identifier: Apache-2.0
// Recipe: training settings of a model (plumb.v1.Train), with plumb.h's defaults filled in, and the
// memory that training with it takes. Assignments: fields of models and recipes by path,
// "model.n_layer", as --set assigns them. Values; pure functions.
#ifndef PLUMB_RUNTIME_CLIENT_RECIPE_H_
#define PLUMB_RUNTIME_CLIENT_RECIPE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/v1/train.schema.h"
#include "runtime/client/model.h"
#include "runtime/client/plumb_api.h"
#include "runtime/data/batches.h"
#include "runtime/data/data.h"

namespace plumb {

// Memory of training, in bytes. All of it is allocated before the first step, so the total is the
// peak of a step. Excludes the text, its tokens, and the program.
struct TrainingMemory : api::TrainerMemory {
  int64_t batch = 0, seq = 0;  // for one pass; seq is the max sequence length
  std::string dtype;           // "f32", "bf16"
  bool recompute_blocks = false;
  int64_t validation = 0;  // memory of the evaluator of the validation split; included in the total
};

struct Recipe {
  // Output of plumb_recipe_text, which writes every field with a nonzero default.
  std::string text;
  v1::Train fields;  // parsed `text`
  // Map from locations of fields in `text`, "12:3", to those in the file, "train.pbtxt:4:1".
  std::map<std::string, std::string> places;
  int64_t chosen_units = 0;   // units in `fields` if chosen for the ranks, else 0
  bool names_format = false;  // the format of the data is not the default

  // Returns `status` with locations in `text`, "recipe:12:3", as in plumb.h's errors, replaced by
  // those in the file.
  absl::Status InFile(const absl::Status& status) const;
};

// Parses `text` in protobuf text format, then applies `settings` ("max_steps", "200") in order.
// `name` names the text in errors. Errors: those of plumb_recipe_text.
absl::StatusOr<Recipe> ParseRecipe(absl::string_view text, const std::string& name,
                                   const Overrides& settings);

// Reads a file; "": the defaults. If the recipe does not set units and has fewer micro-batches than
// there are ranks, units are chosen and become part of the recipe, so that the run can be resumed
// on any number of ranks.
absl::StatusOr<Recipe> ReadRecipe(const std::string& path, const Overrides& settings,
                                  int ranks = 1);

// Returns a warning if the data look like a list of documents, and are read as one text by default;
// otherwise "".
std::string FormatAdvice(const Dataset& data, const Recipe& recipe);

// Returns "bf16" or "f32", the type of computation.
inline const char* GetDTypeName(const Recipe& recipe) {
  return recipe.fields.dtype() == v1::Train::BF16 ? "bf16" : "f32";
}

// Returns the optimizers and their peak learning rates: "AdamW, learning rate 0.001", or "Muon for
// matrices of layers, learning rate 20 * lr; AdamW for the rest, lr 0.001".
std::string OptimizerText(const Recipe& recipe);

DatasetOptions ToDatasetOptions(const Recipe& recipe);

// Returns true if a sequence of the data is a document, between begin and end token.
bool HasDocuments(const Recipe& recipe);

// Fails for a recipe with masked_tokens and data that say which tokens are targets.
absl::Status CheckOneMask(const Dataset& data, const Recipe& recipe);

// Returns the training batches of a model. Errors: kInvalidArgument for a bidirectional model whose
// recipe has no masked_tokens; those of CheckOneMask.
absl::StatusOr<TrainBatches> MakeTrainBatches(const Dataset* data, const Recipe& recipe,
                                              const api::ModelInfo& model);

// Returns the number of tokens that a model needs: those of the tokenizer, and the mask token if
// masked_tokens does not name one.
int64_t NeededVocabulary(const Tokenizer& tokenizer, const Recipe& recipe);

// Sets the model's vocab_size to the tokenizer's size if it is not set, plus one if the recipe adds
// its own mask token (masked_tokens without mask_token). Errors: a vocab_size that is too small,
// with `data_path` and `model_path`.
absl::Status FitVocabulary(const Tokenizer& tokenizer, const Recipe& recipe,
                           const std::string& data_path, const std::string& model_path,
                           api::Spec* model);

// Does the same before training: if `data_path` is "", only for a model without vocab_size, whose
// recipe names a tokenizer or bytes; otherwise vocab_size stays missing.
absl::Status PreviewVocabulary(const Recipe& recipe, const std::string& data_path,
                               const std::string& model_path, api::Spec* model);

// Returns the masking of a recipe for a model's vocabulary, or nullopt if the recipe has none.
std::optional<TokenMasking> GetMasking(const Recipe& recipe, const api::ModelInfo& model);

// Returns the plan of a trainer with this recipe, for sequences of up to `seq` tokens.
TrainingMemory ToTrainingMemory(const api::TrainerMemory& memory, const Recipe& recipe,
                                int64_t seq);

// Returns the memory that training takes with a recipe: the file `train_path` ("": the schema's
// defaults) and the overrides; with several ranks, that of the rank that needs the largest amount.
// Errors: those of TrainRun::Open for the recipe, and programs too large to be addressed.
absl::StatusOr<TrainingMemory> PlanTraining(const api::Model& model, const std::string& train_path,
                                            const Overrides& train_overrides, int32_t ranks = 1);

// Returns a text for users that shows how a recipe's rules update each tensor, as
// PLUMB_EXPLAIN_UPDATES. Errors: those of PlanTraining, and rules that match
// nothing or cannot be evaluated.
absl::StatusOr<std::string> ExplainUpdates(const api::Model& model, const std::string& train_path,
                                           const Overrides& train_overrides);

// Fails, with a suggestion, unless the path begins with "model." or "train." and its next part can
// be a field there. Does not check the rest of the path.
absl::Status CheckSetting(const std::string& path);

// Assigned fields in the order of their assignments, without "model." and "train.".
struct Assignments {
  Overrides model, train;
};

// Parses assignments such as "model.n_layer=4" and "train.max_steps=200". Errors: those of
// CheckSetting, and an assignment without "=".
absl::StatusOr<Assignments> ParseSettings(const std::vector<std::string>& assignments);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_RECIPE_H_
