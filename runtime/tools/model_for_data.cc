#include "runtime/tools/model_for_data.h"

#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/status.h"
#include "runtime/textproto/reader.h"

namespace plumb {

absl::StatusOr<Spec> ReadModel(const std::string& path,
                               const std::vector<std::pair<std::string, std::string>>& settings) {
  PLUMB_ASSIGN_OR_RETURN(Spec model, Spec::FromFile(path));
  for (const auto& [field, value] : settings) {
    PLUMB_RETURN_IF_ERROR(Annotate(model.Set(field, value), "model."));
  }
  return model;
}

absl::StatusOr<std::string> NameOf(const std::string& model_text) {
  v1::Model fields;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(model_text, "model", &fields, &locations));
  return fields.name();
}

absl::Status FitVocabulary(const Tokenizer& tokenizer, const Recipe& recipe,
                           const std::string& data_path, Spec* model) {
  const bool adds_mask =
      recipe.fields.has_masked_tokens() && !recipe.fields.masked_tokens().has_mask_token();
  const int64_t needed = tokenizer.vocab_size() + (adds_mask ? 1 : 0), said = model->vocab_size();
  if (said == 0) return model->Set("vocab_size", absl::StrCat(needed));
  if (said >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(data_path, ": has ", needed, " tokens (", tokenizer.Description(),
                   adds_mask ? ", and the mask token" : "", "), but ", model->name(),
                   " says vocab_size: ", said, "; leave vocab_size out to take it from the data"));
}

}  // namespace plumb
