// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study_options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/app/file_kind.h"
#include "runtime/app/study/plan.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr uint64_t kDefaultSeeds = 3;

// Values of --match.
constexpr std::pair<const char*, StudyMatch> kMatchNames[] = {
    {"steps", StudyMatch::kSteps},
    {"tokens", StudyMatch::kTokens},
    {"flops", StudyMatch::kFlops},
    {"parameters", StudyMatch::kParameters}};

// Returns true if the file is a study, not a model.
bool IsStudy(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  return text.ok() && LikelyFileKind(FileKind::kModel, *text) == FileKind::kStudy;
}

// Splits "FIELD=REST".
absl::StatusOr<std::pair<std::string, std::string>> SplitAtEquals(const char* option,
                                                                  const std::string& word,
                                                                  const char* example) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos && equals > 0) {
    return std::make_pair(word.substr(0, equals), word.substr(equals + 1));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", word, ": no \"=\"; write it like ", option, " ", example));
}

absl::Status AddGrid(const std::string& word, Study* study) {
  PLUMB_ASSIGN_OR_RETURN(auto split, SplitAtEquals("--grid", word, "model.n_layer=4,8"));
  StudyAxis axis;
  axis.field = split.first;
  axis.place = absl::StrCat("--grid ", word);
  for (absl::string_view value : absl::StrSplit(split.second, ',')) {
    value = absl::StripAsciiWhitespace(value);
    if (std::count(value.begin(), value.end(), '(') !=
        std::count(value.begin(), value.end(), ')')) {
      return absl::InvalidArgumentError(
          absl::StrCat(axis.place, ": commas separate values, which makes \"", value,
                       "\" one; write values with commas in a study: grid { field: \"", axis.field,
                       "\" value: \"...\" }"));
    }
    axis.values.emplace_back(value);
  }
  study->grid.push_back(std::move(axis));
  return absl::OkStatus();
}

absl::Status SetSeeds(const StudyOptions& options, Study* study) {
  if (options.seeds > 0 && !options.seed_list.empty()) {
    return absl::InvalidArgumentError("--seeds and --seed exclude each other; give one of them");
  }
  if (options.seeds > 0 || !options.seed_list.empty()) study->seeds.clear();
  for (const std::string& word : options.seed_list) {
    uint64_t seed = 0;
    const bool decimal = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    if (!decimal || (word.size() > 1 && word.front() == '0') || !absl::SimpleAtoi(word, &seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--seed: \"", word, "\" is not a whole number from 0 to ", UINT64_MAX));
    }
    if (std::find(study->seeds.begin(), study->seeds.end(), seed) != study->seeds.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--seed ", word, ": is given twice"));
    }
    study->seeds.push_back(seed);
  }
  uint64_t count = static_cast<uint64_t>(options.seeds);
  if (study->seeds.empty() && count == 0) count = kDefaultSeeds;
  for (uint64_t seed = 1; seed <= count; ++seed) study->seeds.push_back(seed);
  return absl::OkStatus();
}

absl::StatusOr<Study> ReadStudy(const StudyOptions& options) {
  if (options.files.size() == 1 && IsStudy(options.files.front())) {
    return Study::FromFile(options.files.front());
  }
  for (const std::string& file : options.files) {
    if (!IsStudy(file)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is a study, which names its models itself; give it alone"));
  }
  Study study;
  study.models = options.files;
  return study;
}

// Returns "pre" for "models/pre.pbtxt".
std::string StemOf(const std::string& file) { return std::filesystem::path(file).stem().string(); }

// Moves the model `baseline`, a file, its name without ".pbtxt", or a value of the grid that makes
// models, to the first place, to which tables show differences.
absl::Status SetBaseline(const std::string& baseline, Study* study) {
  std::vector<std::string>& models = study->models;
  const auto found = std::find_if(models.begin(), models.end(), [&](const std::string& file) {
    return file == baseline || StemOf(file) == baseline;
  });
  if (found == models.end()) {
    std::vector<std::string> names;
    for (StudyAxis& axis : study->grid) {
      if (IsSetting(axis.field)) continue;
      const auto value = std::find(axis.values.begin(), axis.values.end(), baseline);
      if (value != axis.values.end()) {
        std::rotate(axis.values.begin(), value, value + 1);
        return absl::OkStatus();
      }
      names.insert(names.end(), axis.values.begin(), axis.values.end());
    }
    for (const std::string& file : models) names.push_back(StemOf(file));
    return absl::InvalidArgumentError(absl::StrCat("--baseline: no model is named \"", baseline,
                                                   "\"", DidYouMean(baseline, names)));
  }
  std::rotate(models.begin(), found, found + 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Study> MakeStudy(const StudyOptions& options) {
  PLUMB_ASSIGN_OR_RETURN(Study study, ReadStudy(options));
  if (!options.data.empty()) study.data = options.data;
  if (!options.train.empty()) study.train = options.train;
  if (!options.init.empty()) study.init = options.init;
  for (const std::string& word : options.settings) {
    PLUMB_ASSIGN_OR_RETURN(auto split, SplitAtEquals("--set", word, "train.max_steps=200"));
    study.settings.push_back({split.first, split.second, absl::StrCat("--set ", word)});
  }
  if (!options.dtype.empty()) {
    study.settings.push_back({"train.dtype", absl::AsciiStrToUpper(options.dtype),
                              absl::StrCat("--dtype ", options.dtype)});
  }
  for (const std::string& word : options.grid) {
    PLUMB_RETURN_IF_ERROR(AddGrid(word, &study));
  }
  if (!options.baseline.empty()) {
    PLUMB_RETURN_IF_ERROR(SetBaseline(options.baseline, &study));
  }
  for (const auto& [name, match] : kMatchNames) {
    if (options.match == name) study.match = match;
  }
  PLUMB_RETURN_IF_ERROR(SetSeeds(options, &study));
  if (options.choosing_seeds > 0) study.choosing_seeds = options.choosing_seeds;
  if (options.samples >= 0) study.samples = options.samples;
  if (!options.probe_points.empty()) study.probe_points = options.probe_points;
  if (options.probe_every >= 0) {
    study.probe_every = options.probe_every;
  } else if ((options.probe || !options.probe_points.empty()) && study.probe_every == 0) {
    study.probe_every = kDefaultProbeInterval;
  }
  return study;
}

}  // namespace plumb
