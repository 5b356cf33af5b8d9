// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/study.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

// Returns the number of fields of the message that the text sets.
template <class Message>
int64_t KnownFields(absl::string_view text) {
  Message message;
  textproto::Locations locations;
  // Fields before the first error count, and unknown ones are skipped.
  textproto::ReadText(text, "", &message, &locations).IgnoreError();
  const auto& fields = message.Type().fields;
  return std::count_if(fields.begin(), fields.end(), [&message](const textproto::Field& field) {
    return message.Size(field) > 0;
  });
}

int64_t KnownFields(FileKind kind, absl::string_view text) {
  switch (kind) {
    case FileKind::kModel:
      return KnownFields<v1::Model>(text);
    case FileKind::kRecipe:
      return KnownFields<v1::Train>(text);
    case FileKind::kStudy:
      break;
  }
  return KnownFields<v1::Study>(text);
}

absl::string_view KindName(FileKind kind) {
  switch (kind) {
    case FileKind::kModel:
      return "model";
    case FileKind::kRecipe:
      return "recipe";
    case FileKind::kStudy:
      break;
  }
  return "study";
}

std::string HowToGive(FileKind kind, const std::string& file) {
  switch (kind) {
    case FileKind::kModel:
      return "give it as MODEL, without an option";
    case FileKind::kRecipe:
      return absl::StrCat("give it with --train ", file, ", and the model as MODEL");
    case FileKind::kStudy:
      break;
  }
  return absl::StrCat("run it with plumb compare ", file, " --out DIR");
}

}  // namespace

absl::StatusOr<api::Spec> ModelSource::Parse() const {
  absl::StatusOr<api::Spec> parsed = ToStatus(api::Spec::FromText(text, name));
  if (!parsed.ok()) return ExplainFileKind(FileKind::kModel, text, name, parsed.status());
  api::Spec spec = *std::move(parsed);
  for (const auto& [field, value] : settings) {
    PLUMB_RETURN_IF_ERROR(SetField(field, value, &spec));
  }
  return spec;
}

absl::StatusOr<ModelSource> ReadModelSource(const std::string& path, Overrides settings) {
  PLUMB_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxTextBytes));
  return ModelSource{std::move(text), path, std::move(settings)};
}

absl::StatusOr<std::string> NameInText(const std::string& model_text) {
  v1::Model fields;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(model_text, "model", &fields, &locations));
  return fields.name();
}

absl::StatusOr<api::Spec> ReadSpec(const std::string& path, Overrides settings) {
  PLUMB_ASSIGN_OR_RETURN(const ModelSource source, ReadModelSource(path, std::move(settings)));
  return source.Parse();
}

absl::Status SetField(const std::string& field, const std::string& value, api::Spec* spec) {
  return Annotate(ToStatus(spec->Set(field, value)), "model.");
}

int64_t GetVocabSize(const api::Spec& spec) {
  v1::Model message;
  textproto::Locations locations;
  const absl::Status read = textproto::ReadText(spec.Text().value(), "model", &message, &locations);
  return read.ok() ? message.vocab_size() : 0;
}

absl::StatusOr<api::Model> CreateModel(HostRuntime* runtime, const api::Spec& spec) {
  return OrOutOfMemory("the model's description",
                       [&] { return api::Model::Create(runtime->api(), spec); });
}

absl::StatusOr<nlohmann::ordered_json> DescribeModel(const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, OrOutOfMemory("the model's description",
                                                               [&] { return model.Describe(); }));
  return nlohmann::ordered_json::parse(text);
}

absl::StatusOr<std::string> DrawModel(const api::Model& model, std::optional<int64_t> layer) {
  api::ExplainOptions options;
  options.stage = layer.has_value() ? api::Stage::kLayerSvg : api::Stage::kSvg;
  options.layer = layer.value_or(0);
  return OrOutOfMemory("the model's picture", [&] { return model.Explain(options); });
}

constexpr std::pair<const char*, api::Stage> kStages[] = {
    {"graph", api::Stage::kGraph},         {"grad", api::Stage::kGradients},
    {"optimized", api::Stage::kOptimized}, {"plan", api::Stage::kMemoryPlan},
    {"exec", api::Stage::kExecutable},     {"prompt", api::Stage::kPrompt},
    {"probes", api::Stage::kProbes},       {"pytorch", api::Stage::kPyTorch}};

std::vector<std::string> ExplainStages() {
  std::vector<std::string> names;
  for (const auto& [name, stage] : kStages) names.push_back(name);
  return names;
}

static absl::StatusOr<api::Stage> ToStage(const std::string& wanted) {
  for (const auto& [name, stage] : kStages) {
    if (wanted == name) return stage;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", wanted, "\" is not one of ",
                                                 absl::StrJoin(ExplainStages(), ", "),
                                                 DidYouMean(wanted, ExplainStages())));
}

absl::StatusOr<std::string> ExplainModel(const api::Model& model, const std::string& stage,
                                         int64_t batch, int64_t seq,
                                         const Overrides& train_overrides) {
  const int64_t context_length = model.Info().context_length;
  if (batch < 0) return absl::InvalidArgumentError("batch must be at least 1");
  if (seq < 0 || seq > context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("seq must be in 1..context_length, which is ", context_length));
  }
  v1::Train recipe;
  for (const auto& [field, value] : train_overrides) {
    PLUMB_RETURN_IF_ERROR(Annotate(textproto::SetField(&recipe, field, value), "train."));
  }
  api::ExplainOptions options;
  PLUMB_ASSIGN_OR_RETURN(options.stage, ToStage(stage));
  options.batch = batch;
  options.seq = seq;
  options.recipe = textproto::PrintText(recipe);
  return OrOutOfMemory("the model's graph", [&] { return model.Explain(options); });
}

absl::StatusOr<std::vector<std::string>> ProbePoints(const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string names, ToStatus(model.ProbePoints()));
  return absl::StrSplit(names, '\n', absl::SkipEmpty());
}

absl::StatusOr<std::vector<std::string>> DefaultProbePoints(const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string points, ExplainModel(model, "probes", 0, 0));
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(points, '\n')) {
    if (absl::ConsumePrefix(&line, "* ")) names.emplace_back(line);
  }
  return names;
}

FileKind LikelyFileKind(FileKind expected, absl::string_view text) {
  FileKind likely = expected;
  int64_t most = KnownFields(expected, text);
  for (const FileKind kind : {FileKind::kModel, FileKind::kRecipe, FileKind::kStudy}) {
    const int64_t fields = KnownFields(kind, text);
    if (fields <= most) continue;
    likely = kind;
    most = fields;
  }
  return likely;
}

absl::Status ExplainFileKind(FileKind expected, absl::string_view text, const std::string& file,
                             const absl::Status& error) {
  const FileKind likely = LikelyFileKind(expected, text);
  if (likely == expected) return error;
  return absl::InvalidArgumentError(absl::StrCat(file, ": is a ", KindName(likely), ", not a ",
                                                 KindName(expected), "; ",
                                                 HowToGive(likely, file)));
}

}  // namespace plumb
