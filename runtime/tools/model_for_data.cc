#include "runtime/tools/model_for_data.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<ModelSpec> ReadModel(
    const std::string& path, const std::vector<std::pair<std::string, std::string>>& settings) {
  PLUMB_ASSIGN_OR_RETURN(ModelSpec model, ModelSpec::FromFile(path));
  for (const auto& [field, value] : settings) {
    PLUMB_RETURN_IF_ERROR(Annotate(model.Set(field, value), "model."));
  }
  return model;
}

absl::Status FitVocabulary(const Tokenizer& tokenizer, const std::string& data_path,
                           ModelSpec* model) {
  const int64_t needed = tokenizer.vocab_size();
  if (model->vocab_size() == 0) return model->Set("vocab_size", absl::StrCat(needed));
  if (model->vocab_size() >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(data_path, ": has ", needed, " tokens (", tokenizer.Description(), "), but ",
                   model->file(), " says vocab_size: ", model->vocab_size(),
                   "; leave vocab_size out to take it from the data"));
}

}  // namespace plumb
