// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/recipe.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/ranks/collectives.h"
#include "runtime/schema/field_names.h"
#include "runtime/schema/reader.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb {
namespace {

using textproto::Field;
using textproto::FieldType;
using textproto::Location;
using textproto::Locations;
using textproto::Message;

// Message, and the locations of its fields in a text.
struct Written {
  const Message& message;
  const Locations& locations;
};

std::string LineAndColumn(const Location& location) {
  return absl::StrCat(location.line, ":", location.column);
}

// Returns the index in the file's message of element `index` of the completed recipe, which has
// more elements: lets of imports precede the file's own, rules of imports follow them. -1: the
// element is from an import.
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

// Returns the end of the location, such as "12:3", that begins at `at`.
size_t EndOfPlace(absl::string_view message, size_t at) {
  const auto skip_number = [&] {
    while (at < message.size() && absl::ascii_isdigit(message[at])) ++at;
  };
  skip_number();
  if (at < message.size() && message[at] == ':') ++at;
  skip_number();
  return at;
}

// Returns the setting that is called `name` without its prefix, or elsewhere; "" if there is none.
std::string SettingCalled(const std::string& name) {
  if (std::string path = textproto::SettingNamedElsewhere(name); !path.empty()) return path;
  if (v1::Model().Type().Find(name) != nullptr) return absl::StrCat("model.", name);
  if (v1::Train().Type().Find(name) != nullptr) return absl::StrCat("train.", name);
  return "";
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

absl::StatusOr<Recipe> ParseRecipe(absl::string_view text, const std::string& name,
                                   const Overrides& settings) {
  Recipe recipe;
  absl::StatusOr<std::string> completed_text =
      ToStatus(api::RecipeText({text.data(), text.size()}, settings, name));
  if (!completed_text.ok()) {
    return ExplainFileKind(FileKind::kRecipe, text, name, completed_text.status());
  }
  recipe.text = *std::move(completed_text);
  Locations completed, own;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(recipe.text, name, &recipe.fields, &completed));
  v1::Train said;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, name, &said, &own));
  AddPlaces(name, {said, own}, {recipe.fields, completed}, &recipe.places);
  const auto names_format = [](const auto& setting) { return setting.first == "data.format"; };
  recipe.names_format = absl::StrContains(text, "format") ||
                        std::any_of(settings.begin(), settings.end(), names_format);
  return recipe;
}

absl::StatusOr<Recipe> ReadRecipe(const std::string& path, const Overrides& settings, int ranks) {
  std::string text;
  if (!path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxTextBytes));
  }
  PLUMB_ASSIGN_OR_RETURN(Recipe recipe, ParseRecipe(text, path, settings));
  const int64_t micro_batches = recipe.fields.gradient_accumulation_steps();
  const int64_t units = ChooseUnits(recipe.fields.batch_size(), micro_batches, ranks);
  if (recipe.fields.units() > 0 || units <= micro_batches) return recipe;
  Overrides more = settings;
  more.emplace_back("units", absl::StrCat(units));
  PLUMB_ASSIGN_OR_RETURN(recipe, ParseRecipe(text, path, more));
  recipe.chosen_units = units;
  return recipe;
}

std::string OptimizerText(const Recipe& recipe) {
  const v1::Train& fields = recipe.fields;
  std::string text = absl::StrCat("AdamW, learning rate ", fields.learning_rate());
  if (fields.optimizer() == v1::Train::MUON) {
    const std::string& rate = fields.muon().learning_rate();
    text = absl::StrCat("Muon for matrices of layers, learning rate ", rate.empty() ? "lr" : rate,
                        "; AdamW for the rest, lr ", fields.learning_rate());
  }
  if (fields.rule_size() == 0) return text;
  return absl::StrCat(text, "; ", fields.rule_size(),
                      fields.rule_size() == 1 ? " rule sets others" : " rules set others");
}

DatasetOptions ToDatasetOptions(const Recipe& recipe) {
  const v1::Data& data = recipe.fields.data();
  DatasetOptions options;
  if (data.format() == v1::Data::DOCUMENTS) options.format = DatasetOptions::Format::kDocuments;
  if (data.format() == v1::Data::TOKENS) options.format = DatasetOptions::Format::kTokens;
  if (data.format() == v1::Data::JSONL) options.format = DatasetOptions::Format::kJsonl;
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

std::string FormatAdvice(const Dataset& data, const Recipe& recipe) {
  if (recipe.names_format || data.longest_item() == 0) return "";
  return absl::StrCat(
      data.name(),
      ": is read as one text, and its end is held out, although no line has more than ",
      data.longest_item(),
      " bytes; if each line is a document, set train.data.format=DOCUMENTS, else TEXT");
}

bool HasDocuments(const Recipe& recipe) {
  const v1::Data::Format format = recipe.fields.data().format();
  return format == v1::Data::DOCUMENTS || format == v1::Data::JSONL;
}

absl::Status CheckOneMask(const Dataset& data, const Recipe& recipe) {
  if (!data.has_masks() || !recipe.fields.has_masked_tokens()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      data.name(),
      ": masked_tokens chooses the targets, but this data has a mask or prompts, which exclude "
      "some; drop masked_tokens, or use data without them"));
}

absl::StatusOr<TrainBatches> MakeTrainBatches(const Dataset* data, const Recipe& recipe,
                                              const api::ModelInfo& model) {
  const bool is_bidirectional = model.bidirectional != 0;
  if (is_bidirectional && !recipe.fields.has_masked_tokens()) {
    return absl::InvalidArgumentError(
        "the model is bidirectional: a token sees the next one, so that nothing is learned from "
        "predicting it; write masked_tokens {} into the recipe to train it to fill gaps");
  }
  PLUMB_RETURN_IF_ERROR(CheckOneMask(*data, recipe));
  TrainBatches::Options options;
  options.batch_size = recipe.fields.batch_size();
  options.micro_batches = recipe.fields.gradient_accumulation_steps();
  options.context_length = model.context_length;
  options.seed = recipe.fields.seed();
  options.keep_order = recipe.fields.data().keep_order();
  options.padding = is_bidirectional ? -1 : 0;
  return TrainBatches::Create(data, options);
}

int64_t NeededVocabulary(const Tokenizer& tokenizer, const Recipe& recipe) {
  const bool adds_mask =
      recipe.fields.has_masked_tokens() && !recipe.fields.masked_tokens().has_mask_token();
  return tokenizer.vocab_size() + (adds_mask ? 1 : 0);
}

absl::Status FitVocabulary(const Tokenizer& tokenizer, const Recipe& recipe,
                           const std::string& data_path, const std::string& model_path,
                           api::Spec* model) {
  const int64_t needed = NeededVocabulary(tokenizer, recipe), said = GetVocabSize(*model);
  const bool adds_mask = needed > tokenizer.vocab_size();
  if (said == 0) return ToStatus(model->Set("vocab_size", needed));
  if (said >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(data_path, ": has ", needed, " tokens (", tokenizer.Description(),
                   adds_mask ? ", and the mask token" : "", "), but ", model_path,
                   " sets vocab_size: ", said, "; drop vocab_size to take it from the data"));
}

absl::Status PreviewVocabulary(const Recipe& recipe, const std::string& data_path,
                               const std::string& model_path, api::Spec* model) {
  const v1::Data& fields = recipe.fields.data();
  const auto fit = [&](const Tokenizer& tokenizer) {
    return FitVocabulary(tokenizer, recipe, data_path, model_path, model);
  };
  if (!data_path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const Dataset data, Dataset::Load(data_path, ToDatasetOptions(recipe)));
    return fit(data.tokenizer());
  }
  if (GetVocabSize(*model) > 0) return absl::OkStatus();
  if (!fields.tokenizer().empty()) {
    PLUMB_ASSIGN_OR_RETURN(const Tokenizer tokenizer, ReadTokenizer(fields.tokenizer()));
    return fit(tokenizer);
  }
  if (fields.vocabulary() != v1::Data::BYTES) return absl::OkStatus();
  return fit(Tokenizer::Bytes(HasDocuments(recipe)));
}

std::optional<TokenMasking> GetMasking(const Recipe& recipe, const api::ModelInfo& model) {
  if (!recipe.fields.has_masked_tokens()) return std::nullopt;
  const v1::MaskedTokens& said = recipe.fields.masked_tokens();  // includes defaults
  TokenMasking masking;
  masking.seed = recipe.fields.seed();
  masking.special_tokens.assign(said.special_token().begin(), said.special_token().end());
  masking.share = said.share();
  masking.masked = said.masked();
  masking.random = said.random();
  masking.mask_token =
      said.has_mask_token() ? said.mask_token() : static_cast<int32_t>(model.vocab_size - 1);
  masking.vocab_size = model.vocab_size;
  return masking;
}

TrainingMemory ToTrainingMemory(const api::TrainerMemory& memory, const Recipe& recipe,
                                int64_t seq) {
  TrainingMemory out;
  static_cast<api::TrainerMemory&>(out) = memory;
  const int64_t micro_batches = recipe.fields.gradient_accumulation_steps();
  const int64_t units = recipe.fields.units() == 0 ? micro_batches : recipe.fields.units();
  out.batch = recipe.fields.batch_size() * micro_batches / units;
  out.seq = seq;
  out.dtype = GetDTypeName(recipe);
  out.recompute_blocks = recipe.fields.recompute() == v1::Recompute::BLOCK;
  return out;
}

absl::StatusOr<TrainingMemory> PlanTraining(const api::Model& model, const std::string& train_path,
                                            const Overrides& train_overrides, int32_t ranks) {
  return OrOutOfMemory("the training program", [&]() -> absl::StatusOr<TrainingMemory> {
    PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides, ranks));
    api::TrainerOptions options;
    options.recipe = recipe.text;
    options.ranks = ranks;
    const auto planned = ToStatus(api::Trainer::Plan(model, options));
    if (!planned.ok()) return recipe.InFile(planned.status());
    return ToTrainingMemory(*planned, recipe, model.Info().context_length);
  });
}

absl::StatusOr<std::string> ExplainUpdates(const api::Model& model, const std::string& train_path,
                                           const Overrides& train_overrides) {
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides));
  api::ExplainOptions options;
  options.stage = api::Stage::kUpdates;
  options.recipe = recipe.text;
  absl::StatusOr<std::string> text =
      OrOutOfMemory("the recipe", [&] { return model.Explain(options); });
  if (!text.ok()) return recipe.InFile(text.status());
  return text;
}

absl::Status CheckSetting(const std::string& path) {
  const size_t dot = path.find('.');
  const std::string prefix = path.substr(0, dot);
  if (dot != std::string::npos && (prefix == "model" || prefix == "train")) {
    const std::string name = path.substr(dot + 1, path.find_first_of(".[", dot + 1) - dot - 1);
    const auto& type = prefix == "model" ? v1::Model().Type() : v1::Train().Type();
    const std::string called = SettingCalled(name);
    if (type.Find(name) != nullptr || called.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(type.name, " has no field \"", name, "\"; did you mean \"", called, "\"?"));
  }
  std::string suggestion;
  if (dot != std::string::npos) {
    suggestion = DidYouMean(prefix, {"model", "train"});
  } else if (const std::string called = SettingCalled(path); !called.empty()) {
    suggestion = absl::StrCat("; did you mean \"", called, "\"?");
  } else {
    suggestion = textproto::SuggestField(v1::Model().Type(), path);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path, "\": a setting begins with \"model.\" or \"train.\"", suggestion));
}

absl::StatusOr<Assignments> ParseSettings(const std::vector<std::string>& assignments) {
  Assignments settings;
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", assignment, ": no \"=\"; write it like --set train.max_steps=200"));
    }
    const std::string field = assignment.substr(0, equals);
    const std::string value = assignment.substr(equals + 1);
    PLUMB_RETURN_IF_ERROR(Annotate(CheckSetting(field), absl::StrCat("--set ", assignment, ": ")));
    const bool is_of_model = absl::StartsWith(field, "model.");
    (is_of_model ? settings.model : settings.train)
        .emplace_back(field.substr(field.find('.') + 1), value);
  }
  return settings;
}

}  // namespace plumb
