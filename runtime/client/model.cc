// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plumb/v1/model.schema.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/client/file_kind.h"
#include "runtime/schema/reader.h"

namespace plumb {

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

absl::StatusOr<api::Spec> ReadSpec(const std::string& path, Overrides settings) {
  PLUMB_ASSIGN_OR_RETURN(const ModelSource source, ReadModelSource(path, std::move(settings)));
  return source.Parse();
}

absl::Status SetField(const std::string& field, const std::string& value, api::Spec* spec) {
  return Annotate(ToStatus(spec->Set(field, value)), "model.");
}

int64_t VocabSizeOf(const api::Spec& spec) {
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
    {"probes", api::Stage::kProbes}};

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

}  // namespace plumb
