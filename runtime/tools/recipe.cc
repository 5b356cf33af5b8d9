#include "runtime/tools/recipe.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/textproto/reader.h"
#include "runtime/tools/handles.h"

namespace plumb {

absl::StatusOr<Recipe> ParseRecipe(
    absl::string_view text, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<const char*> pairs;
  for (const auto& [field, value] : settings) {
    pairs.push_back(field.c_str());
    pairs.push_back(value.c_str());
  }
  Recipe recipe;
  PLUMB_ASSIGN_OR_RETURN(recipe.text, TextOf(plumb_recipe_text, text.data(), text.size(),
                                             name.c_str(), pairs.data(), settings.size()));
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(recipe.text, name, &recipe.fields, &locations));
  return recipe;
}

absl::StatusOr<Recipe> ReadRecipe(
    const std::string& path, const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string text;
  if (!path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxTextBytes));
  }
  return ParseRecipe(text, path, settings);
}

DatasetOptions ToDatasetOptions(const Recipe& recipe) {
  const v1::Data& data = recipe.fields.data();
  DatasetOptions options;
  if (data.format() == v1::Data::DOCUMENTS) options.format = DatasetOptions::Format::kDocuments;
  if (data.format() == v1::Data::TOKENS) options.format = DatasetOptions::Format::kTokens;
  if (data.vocabulary() == v1::Data::BYTES) options.vocabulary = Tokenizer::Kind::kBytes;
  if (data.vocabulary() == v1::Data::TOKENIZER || data.vocabulary() == v1::Data::BPE) {
    options.vocabulary = Tokenizer::Kind::kSubwords;
  }
  options.tokenizer_path = data.tokenizer();
  options.bpe_vocab_size = data.bpe_vocab_size();
  options.token_bits = data.token_bits();
  options.val_fraction = data.val_fraction();
  return options;
}

plumb_trainer_options ToTrainerOptions(const Recipe& recipe) {
  auto options = Sized<plumb_trainer_options>();
  options.recipe = recipe.text.data();
  options.recipe_size = recipe.text.size();
  return options;
}

}  // namespace plumb
