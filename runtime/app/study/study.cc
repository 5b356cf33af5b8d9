// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study.h"

#include "absl/strings/str_cat.h"
#include "runtime/app/file_kind.h"
#include "runtime/app/study/study_spec.h"
#include "runtime/app/train/recipe.h"
#include "runtime/app/train/run_identity.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

absl::StatusOr<StudySetting> ToSetting(const SourceText& text) {
  const size_t equals = text.value.find('=');
  if (equals == std::string::npos) {
    return ErrorAt(text.place, absl::StrCat("set: \"", text.value,
                                            "\" has no \"=\"; write it like "
                                            "\"train.max_steps=200\""));
  }
  return StudySetting{text.value.substr(0, equals), text.value.substr(equals + 1),
                      text.place.ToString()};
}

}  // namespace

absl::StatusOr<Study> Study::FromFile(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  const absl::StatusOr<StudySpec> parsed = ParseStudySpec(text, path);
  if (!parsed.ok()) return ExplainFileKind(FileKind::kStudy, text, path, parsed.status());
  const StudySpec& spec = *parsed;
  const std::string directory = DirectoryOf(path);
  const auto resolve = [&directory](const std::string& file) {
    if (file.empty() || directory == ".") return file;
    return JoinPath(directory, file);
  };
  Study study;
  for (const std::string& model : spec.models) study.models.push_back(resolve(model));
  study.data = resolve(spec.data);
  study.train = resolve(spec.train);
  study.init = resolve(spec.init);
  for (const SourceText& setting : spec.settings) {
    PLUMB_ASSIGN_OR_RETURN(StudySetting added, ToSetting(setting));
    study.settings.push_back(std::move(added));
  }
  for (const StudySpec::Grid& axis : spec.grid) {
    study.grid.push_back({axis.field.value, axis.values, axis.field.place.ToString()});
  }
  study.match = spec.match;
  study.seeds = spec.seed_list;
  for (int64_t seed = 1; seed <= spec.seeds.value_or(0); ++seed) {
    study.seeds.push_back(static_cast<uint64_t>(seed));
  }
  study.samples = spec.samples.value_or(study.samples);
  study.choosing_seeds = spec.choosing_seeds;
  study.probe_every = spec.probe_every;
  study.probe_points = spec.probe_points;
  return study;
}

std::string Study::ToText() const {
  StudySpec spec;
  spec.models = models;
  spec.data = data;
  spec.train = train;
  spec.init = init;
  for (const StudySetting& setting : settings) {
    spec.settings.push_back({absl::StrCat(setting.field, "=", setting.value), {}});
  }
  for (const StudyAxis& axis : grid) spec.grid.push_back({{axis.field, {}}, axis.values});
  spec.match = match;
  spec.seed_list = seeds;
  spec.samples = samples;
  spec.choosing_seeds = choosing_seeds;
  spec.probe_every = probe_every;
  spec.probe_points = probe_points;
  return spec.ToText();
}

absl::StatusOr<TrainingPreview> PreviewTraining(const std::string& data_path,
                                                const std::string& train_path,
                                                const Overrides& train_overrides) {
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(train_path, train_overrides));
  PLUMB_ASSIGN_OR_RETURN(const Dataset data, Dataset::Load(data_path, ToDatasetOptions(recipe)));
  TrainingPreview preview;
  preview.train_text = recipe.text;
  preview.max_steps = recipe.fields.max_steps();
  preview.data = data.Description();
  preview.data_hash = data.data_hash();
  preview.tokenizer_hash = HashOfTokenizer(data.tokenizer());
  preview.vocab_size = NeededVocabulary(data.tokenizer(), recipe);
  preview.has_documents = HasDocuments(recipe);
  preview.has_validation = data.has_targets(Split::kValidation);
  return preview;
}

}  // namespace plumb
