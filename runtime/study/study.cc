// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/client/recipe.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"
#include "runtime/train/train_run.h"

namespace plumb {
namespace {

constexpr int kMaxSeeds = 10000, kDefaultSeeds = 3, kDefaultSamples = 8;

class Diagnostics {
 public:
  void Require(bool holds, const SourceLocation& place, absl::string_view message) {
    if (!holds) errors_.push_back(std::string(ErrorAt(place, message).message()));
  }
  absl::Status status() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(ListDiagnostics(errors_));
  }

 private:
  std::vector<std::string> errors_;
};

absl::Status CheckField(const std::string& field) {
  PLUMB_RETURN_IF_ERROR(CheckSetting(field));
  if (field == "train.seed") {
    return absl::InvalidArgumentError("train.seed cannot be set in a study; use --seeds or --seed");
  }
  return absl::OkStatus();
}

absl::Status CheckAssignment(const std::string& setting) {
  if (setting.find('=') == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", setting, "\" has no \"=\"; write it like \"train.max_steps=200\""));
  }
  return CheckField(SplitSetting(setting).first);
}

void CheckSettings(const v1::Study& study, const Located& at, Diagnostics* errors) {
  const auto require = [errors](const absl::Status& status, const SourceLocation& place,
                                const char* field) {
    errors->Require(status.ok(), place, absl::StrCat(field, ": ", status.message()));
  };
  for (int i = 0; i < study.set_size(); ++i) {
    require(CheckAssignment(study.set(i)), at.At("set", i), "set");
  }
  for (int i = 0; i < study.grid_size(); ++i) {
    const v1::Grid& grid = study.grid(i);
    errors->Require(!grid.field().empty(), at.At("grid", i), "grid: field is missing");
    errors->Require(grid.value_size() > 0, at.At("grid", i),
                    absl::StrCat("grid: ", grid.field(), " has no value"));
    if (!grid.field().empty()) {
      require(CheckField(grid.field()), at.Nested("grid", i).At("field"), "grid");
    }
  }
}

absl::Status Check(const v1::Study& study, const Located& at) {
  Diagnostics errors;
  if (study.has_seeds()) {
    errors.Require(study.seeds() >= 1 && study.seeds() <= kMaxSeeds, at.At("seeds"),
                   absl::StrCat("seeds must be in 1..", kMaxSeeds));
    errors.Require(study.seed_size() == 0, at.At("seeds"),
                   "seeds and seed: give a number of seeds or their values, not both");
  }
  std::set<uint64_t> seeds;
  for (int i = 0; i < study.seed_size(); ++i) {
    errors.Require(seeds.insert(study.seed(i)).second, at.At("seed", i),
                   absl::StrCat("seed ", study.seed(i), " is given twice"));
  }
  if (study.has_samples()) {
    errors.Require(study.samples() >= 0 && study.samples() <= 1000, at.At("samples"),
                   "samples must be in 0..1000");
  }
  if (study.has_choosing_seeds()) {
    errors.Require(study.choosing_seeds() >= 1, at.At("choosing_seeds"),
                   "choosing_seeds must be 1 or more");
  }
  errors.Require(study.margin() >= 0 && std::isfinite(study.margin()), at.At("margin"),
                 "margin must be zero or more");
  errors.Require(study.probe_every() >= 0, at.At("probe_every"),
                 "probe_every must be zero or more");
  CheckSettings(study, at, &errors);
  return errors.status();
}

// Returns true if the file is a study, not a model.
bool IsStudy(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  return text.ok() && LikelyFileKind(FileKind::kModel, *text) == FileKind::kStudy;
}

absl::StatusOr<Study> BuildStudy(const std::vector<std::string>& files) {
  if (files.size() == 1 && IsStudy(files.front())) return ReadStudy(files.front());
  Study study;
  for (const std::string& file : files) {
    if (IsStudy(file)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": is a study, which names its models itself; give it alone"));
    }
    study.fields.add_model(file);
  }
  study.fields.set_samples(kDefaultSamples);
  return study;
}

// Replaces the elements of a repeated field.
template <class T>
void Replace(const char* name, const std::vector<T>& values, v1::Study* study) {
  const textproto::Field& field = *study->Type().Find(name);
  study->Clear(field);
  for (const T& value : values) study->Put(field, value);
}

absl::Status AddGrid(const std::string& word, v1::Study* study) {
  const auto [field, values] = SplitSetting(word);
  PLUMB_RETURN_IF_ERROR(CheckField(field));
  v1::Grid* const axis = study->add_grid();
  axis->set_field(field);
  for (absl::string_view value : absl::StrSplit(values, ',')) {
    value = absl::StripAsciiWhitespace(value);
    if (std::count(value.begin(), value.end(), '(') !=
        std::count(value.begin(), value.end(), ')')) {
      return absl::InvalidArgumentError(
          absl::StrCat("commas separate values, which makes \"", value,
                       "\" one; write values with commas in a study: grid { field: \"", field,
                       "\" value: \"...\" }"));
    }
    axis->add_value(std::string(value));
  }
  return absl::OkStatus();
}

absl::Status AddSeed(const std::string& word, std::vector<uint64_t>* seeds) {
  uint64_t seed = 0;
  const bool decimal = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  if (!decimal || (word.size() > 1 && word.front() == '0') || !absl::SimpleAtoi(word, &seed)) {
    return absl::InvalidArgumentError(absl::StrCat("is not a whole number from 0 to ", UINT64_MAX));
  }
  if (std::find(seeds->begin(), seeds->end(), seed) != seeds->end()) {
    return absl::InvalidArgumentError("is given twice");
  }
  seeds->push_back(seed);
  return absl::OkStatus();
}

// Returns "pre" for "models/pre.pbtxt".
std::string FileStem(const std::string& file) {
  return std::filesystem::path(file).stem().string();
}

absl::Status SetBaseline(const std::string& baseline, v1::Study* study) {
  std::vector<std::string> models = study->model();
  const auto found = std::find_if(models.begin(), models.end(), [&](const std::string& file) {
    return file == baseline || FileStem(file) == baseline;
  });
  if (found != models.end()) {
    std::rotate(models.begin(), found, found + 1);
    Replace("model", models, study);
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  std::vector<v1::Grid> grid = study->grid();
  for (v1::Grid& axis : grid) {
    if (IsSetting(axis.field())) continue;
    std::vector<std::string> values = axis.value();
    const auto value = std::find(values.begin(), values.end(), baseline);
    names.insert(names.end(), values.begin(), values.end());
    if (value == values.end()) continue;
    std::rotate(values.begin(), value, value + 1);
    axis.clear_value();
    for (const std::string& each : values) axis.add_value(each);
    study->clear_grid();
    for (const v1::Grid& each : grid) *study->add_grid() = each;
    return absl::OkStatus();
  }
  for (const std::string& file : models) names.push_back(FileStem(file));
  return absl::InvalidArgumentError(
      absl::StrCat("no model is named \"", baseline, "\"", DidYouMean(baseline, names)));
}

// Changes a study by the options of a command line.
class StudyChanger {
 public:
  explicit StudyChanger(Study* study) : places_(*study), study_(study->fields) {}

  absl::Status Apply(const StudyChange& change) {
    const std::string& field = change.field;
    if (field == "seed") return AddSeed(change.value, &seeds_);
    if (field == "probe_point") {
      points_.push_back(change.value);
    } else if (field == "baseline") {
      baseline_ = change;
    } else if (field == "probe") {
      probes_ = true;
    } else if (field == "dtype") {
      study_.add_set(absl::StrCat("train.dtype=", absl::AsciiStrToUpper(change.value)));
      places_.set_places.push_back(absl::StrCat(change.option, " ", change.value));
    } else if (field == "set" || field == "grid") {
      return AddSetting(change);
    } else {
      has_interval_ |= field == "probe_every";
      has_seeds_ |= field == "seeds";
      const textproto::Field* const found = study_.Type().Find(field);
      if (found->type != textproto::FieldType::kString) {
        return textproto::SetField(&study_, field, change.value);
      }
      study_.Put(*found, change.value);  // a path may have any bytes
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (has_seeds_ && !seeds_.empty()) {
      return absl::InvalidArgumentError("--seeds and --seed exclude each other; give one of them");
    }
    if (has_seeds_) study_.clear_seed();
    if (!seeds_.empty()) {
      study_.Clear(*study_.Type().Find("seeds"));
      Replace("seed", seeds_, &study_);
    }
    if (!points_.empty()) Replace("probe_point", points_, &study_);
    if (!has_interval_ && study_.probe_every() == 0 && (probes_ || !points_.empty())) {
      study_.set_probe_every(kDefaultProbeInterval);
    }
    if (baseline_.value.empty()) return absl::OkStatus();
    return Annotate(SetBaseline(baseline_.value, &study_), absl::StrCat(baseline_.option, ": "));
  }

 private:
  absl::Status AddSetting(const StudyChange& change) {
    const bool is_grid = change.field == "grid";
    if (const size_t equals = change.value.find('='); equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("no \"=\"; write it like ", change.option, " ",
                       is_grid ? "model.n_layer=4,8" : "train.max_steps=200"));
    }
    (is_grid ? places_.grid_places : places_.set_places)
        .push_back(absl::StrCat(change.option, " ", change.value));
    if (is_grid) return AddGrid(change.value, &study_);
    study_.add_set(change.value);
    return CheckField(SplitSetting(change.value).first);
  }

  Study& places_;
  v1::Study& study_;
  std::vector<uint64_t> seeds_;
  std::vector<std::string> points_;
  StudyChange baseline_;
  bool has_seeds_ = false, has_interval_ = false, probes_ = false;
};

}  // namespace

absl::StatusOr<Study> ParseStudy(absl::string_view text, const std::string& file) {
  Study study;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, file, &study.fields, &locations));
  const Located at(file, study.fields, &locations);
  PLUMB_RETURN_IF_ERROR(Check(study.fields, at));
  for (int i = 0; i < study.fields.set_size(); ++i) {
    study.set_places.push_back(at.At("set", i).ToString());
  }
  for (int i = 0; i < study.fields.grid_size(); ++i) {
    study.grid_places.push_back(at.Nested("grid", i).At("field").ToString());
  }
  return study;
}

absl::StatusOr<Study> ReadStudy(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  absl::StatusOr<Study> parsed = ParseStudy(text, path);
  if (!parsed.ok()) return ExplainFileKind(FileKind::kStudy, text, path, parsed.status());
  v1::Study* const study = &parsed->fields;
  const std::string directory = ParentDirectory(path);
  const auto resolve = [&directory](const std::string& file) {
    return file.empty() || directory == "." ? file : JoinPath(directory, file);
  };
  std::vector<std::string> models;
  for (const std::string& model : study->model()) models.push_back(resolve(model));
  Replace("model", models, study);
  std::vector<v1::Grid> grid = study->grid();
  study->clear_grid();
  for (const v1::Grid& axis : grid) {
    v1::Grid* const stripped = study->add_grid();
    stripped->set_field(axis.field());
    for (const std::string& value : axis.value()) {
      stripped->add_value(std::string(absl::StripAsciiWhitespace(value)));
    }
  }
  study->set_data(resolve(study->data()));
  study->set_train(resolve(study->train()));
  study->set_init(resolve(study->init()));
  if (!study->has_samples()) study->set_samples(kDefaultSamples);
  return parsed;
}

absl::StatusOr<Study> MakeStudy(const std::vector<std::string>& files,
                                const std::vector<StudyChange>& changes) {
  PLUMB_ASSIGN_OR_RETURN(Study study, BuildStudy(files));
  StudyChanger changer(&study);
  for (const StudyChange& change : changes) {
    PLUMB_RETURN_IF_ERROR(
        Annotate(changer.Apply(change), absl::StrCat(change.option, " ", change.value, ": ")));
  }
  PLUMB_RETURN_IF_ERROR(changer.Finish());
  return study;
}

std::vector<uint64_t> GetSeeds(const v1::Study& study) {
  std::vector<uint64_t> seeds = study.seed();
  const int count = !seeds.empty() ? 0 : study.has_seeds() ? study.seeds() : kDefaultSeeds;
  for (int seed = 1; seed <= count; ++seed) seeds.push_back(static_cast<uint64_t>(seed));
  return seeds;
}

std::pair<std::string, std::string> SplitSetting(const std::string& setting) {
  const size_t equals = setting.find('=');
  return {setting.substr(0, equals), setting.substr(equals + 1)};
}

bool IsSetting(const std::string& field) {
  static const auto& sizes = *new std::set<std::string>{
      "model.n_layer", "model.n_head",   "model.n_kv_head",  "model.d_model",
      "model.d_ff",    "model.head_dim", "model.vocab_size", "model.context_length"};
  return !absl::StartsWith(field, "model.") || sizes.count(field) > 0;
}

}  // namespace plumb
