// A model's description as a run takes it: read from a file, settings applied, the size of its
// vocabulary taken from the data. Pure but for the file. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_MODEL_FOR_DATA_H_
#define PLUMB_RUNTIME_TOOLS_MODEL_FOR_DATA_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tools/model.h"
#include "runtime/tools/recipe.h"

namespace plumb {

// `settings`: field and value. An error names the file, or "model." and the field.
absl::StatusOr<Spec> ReadModel(const std::string& path,
                               const std::vector<std::pair<std::string, std::string>>& settings);

// The name in a model's whole text (plumb_model_text).
absl::StatusOr<std::string> NameOf(const std::string& model_text);

// Sets vocab_size to the tokenizer's where the model leaves it out, and one more if the recipe
// hides tokens behind one of their own (masked_tokens without mask_token); one that is too small is
// an error, which names `data_path`.
absl::Status FitVocabulary(const Tokenizer& tokenizer, const Recipe& recipe,
                           const std::string& data_path, Spec* model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_MODEL_FOR_DATA_H_
