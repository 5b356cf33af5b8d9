#include "runtime/tools/recipe.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/textproto/reader.h"
#include "runtime/tools/handles.h"

namespace plumb {
namespace {

using textproto::Field;
using textproto::FieldType;
using textproto::Location;
using textproto::Locations;
using textproto::Message;

// A message, and where its fields stand in a text.
struct Written {
  const Message& message;
  const Locations& locations;
};

std::string LineAndColumn(const Location& location) {
  return absl::StrCat(location.line, ":", location.column);
}

// Which element of the file's is element `index` of a completed recipe, which has more: lets of
// imports come before the file's own, rules after them. -1: it is an import's.
int OwnIndex(const Field& field, int index, const Written& own, const Written& completed) {
  if (!field.repeated()) return index;
  const int own_size = own.message.Size(field);
  if (field.type == FieldType::kString) index -= completed.message.Size(field) - own_size;
  return index < own_size ? std::max(index, -1) : -1;
}

void AddPlaces(const std::string& file, const Written& own, const Written& completed,
               std::map<std::string, std::string>* places) {
  for (const Field& field : completed.message.Type().fields) {
    for (int i = 0; i < completed.message.Size(field); ++i) {
      const int own_index = OwnIndex(field, i, own, completed);
      if (own_index < 0) continue;
      const Location in_text = completed.locations.At(field, i);
      const Location in_file = own.locations.At(field, own_index);
      if (in_text.line == 0 || in_file.line == 0) continue;
      (*places)[LineAndColumn(in_text)] = absl::StrCat(file, ":", LineAndColumn(in_file));
      if (field.type != FieldType::kMessage) continue;
      const Locations* const text_fields = completed.locations.Nested(field, i);
      const Locations* const file_fields = own.locations.Nested(field, own_index);
      if (text_fields == nullptr || file_fields == nullptr) continue;
      AddPlaces(file, {own.message.GetMessage(field, own_index), *file_fields},
                {completed.message.GetMessage(field, i), *text_fields}, places);
    }
  }
}

// Where "12:3" ends that begins at `at`.
size_t EndOfPlace(absl::string_view message, size_t at) {
  const auto skip_number = [&] {
    while (at < message.size() && absl::ascii_isdigit(message[at])) ++at;
  };
  skip_number();
  if (at < message.size() && message[at] == ':') ++at;
  skip_number();
  return at;
}

}  // namespace

absl::Status Recipe::InFile(const absl::Status& status) const {
  constexpr absl::string_view kFile = "recipe:";
  const absl::string_view message = status.message();
  std::string out;
  size_t at = 0;
  for (size_t found; (found = message.find(kFile, at)) != message.npos;) {
    const size_t place = found + kFile.size();
    const size_t end = EndOfPlace(message, place);
    const auto in_file = places.find(std::string(message.substr(place, end - place)));
    absl::StrAppend(&out, message.substr(at, found - at),
                    in_file == places.end() ? message.substr(found, end - found)
                                            : absl::string_view(in_file->second));
    at = end;
  }
  absl::StrAppend(&out, message.substr(at));
  return absl::Status(status.code(), out);
}

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
  Locations completed, own;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(recipe.text, name, &recipe.fields, &completed));
  v1::Train said;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, name, &said, &own));
  AddPlaces(name, {said, own}, {recipe.fields, completed}, &recipe.places);
  return recipe;
}

absl::StatusOr<Recipe> ReadRecipe(const std::string& path,
                                  const std::vector<std::pair<std::string, std::string>>& settings,
                                  int ranks) {
  std::string text;
  if (!path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxTextBytes));
  }
  PLUMB_ASSIGN_OR_RETURN(Recipe recipe, ParseRecipe(text, path, settings));
  const int64_t micro_batches = recipe.fields.gradient_accumulation_steps();
  const int64_t units = ChooseUnits(recipe.fields.batch_size(), micro_batches, ranks);
  if (recipe.fields.units() > 0 || units <= micro_batches) return recipe;
  std::vector<std::pair<std::string, std::string>> more = settings;
  more.emplace_back("units", absl::StrCat(units));
  PLUMB_ASSIGN_OR_RETURN(recipe, ParseRecipe(text, path, more));
  recipe.chosen_units = units;
  return recipe;
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
  options.begin_token = data.begin_token();
  options.end_token = data.end_token();
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
