#include "runtime/tools/model_for_data.h"

#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/status.h"
#include "runtime/textproto/reader.h"

namespace plumb {
namespace {

// Of a text that plumb.h gave.
absl::StatusOr<v1::Model> FieldsOf(const std::string& text) {
  v1::Model fields;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, "model", &fields, &locations));
  return fields;
}

}  // namespace

absl::StatusOr<SpecHandle> ReadModel(
    const std::string& path, const std::vector<std::pair<std::string, std::string>>& settings) {
  PLUMB_ASSIGN_OR_RETURN(SpecHandle model,
                         MakeHandle<SpecHandle>(plumb_spec_from_file, path.c_str()));
  for (const auto& [field, value] : settings) {
    PLUMB_RETURN_IF_ERROR(
        Annotate(CallPlumb(plumb_spec_set, model.get(), field.c_str(), value.c_str()), "model."));
  }
  return model;
}

absl::StatusOr<std::string> NameOf(const std::string& model_text) {
  PLUMB_ASSIGN_OR_RETURN(const v1::Model fields, FieldsOf(model_text));
  return fields.name();
}

absl::StatusOr<int64_t> VocabularyOf(const plumb_spec* model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, TextOf(plumb_spec_text, model));
  PLUMB_ASSIGN_OR_RETURN(const v1::Model fields, FieldsOf(text));
  return fields.vocab_size();
}

absl::Status FitVocabulary(const Tokenizer& tokenizer, const std::string& data_path,
                           const std::string& model_path, plumb_spec* model) {
  const int64_t needed = tokenizer.vocab_size();
  PLUMB_ASSIGN_OR_RETURN(const int64_t said, VocabularyOf(model));
  if (said == 0) {
    const std::string size = absl::StrCat(needed);
    return CallPlumb(plumb_spec_set, model, "vocab_size", size.c_str());
  }
  if (said >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      data_path, ": has ", needed, " tokens (", tokenizer.Description(), "), but ", model_path,
      " says vocab_size: ", said, "; leave vocab_size out to take it from the data"));
}

}  // namespace plumb
