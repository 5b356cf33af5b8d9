// Recipe: how a model is trained (plumb.v1.Train), as plumb.h completes it. A value. Private to
// runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RECIPE_H_
#define PLUMB_RUNTIME_TOOLS_RECIPE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb.h"
#include "plumb/v1/train.schema.h"
#include "runtime/data/data.h"

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
absl::StatusOr<Recipe> ParseRecipe(
    absl::string_view text, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& settings);

// The same of a file; "": the defaults. If the recipe leaves units open and has fewer micro-batches
// than there are ranks, units are chosen and become part of it, so that a run that keeps it can be
// resumed on any number of ranks.
absl::StatusOr<Recipe> ReadRecipe(const std::string& path,
                                  const std::vector<std::pair<std::string, std::string>>& settings,
                                  int ranks = 1);

// Which of the two.
inline const char* DTypeOf(const Recipe& recipe) {
  return recipe.fields.dtype() == v1::Train::BF16 ? "bf16" : "f32";
}

DatasetOptions ToDatasetOptions(const Recipe& recipe);

// A trainer with this recipe, whose text must outlive them; the other options are 0.
plumb_trainer_options ToTrainerOptions(const Recipe& recipe);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RECIPE_H_
