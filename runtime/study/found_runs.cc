// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/found_runs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/client/recipe.h"
#include "runtime/study/results.h"
#include "runtime/study/text_fields.h"
#include "runtime/train/loss_summary.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_identity.h"

namespace plumb {
namespace {

struct FoundRun {
  std::string directory;
  std::string model_text;   // model.pbtxt
  std::string model_key;    // the same without sizes
  std::string size_text;    // the sizes
  std::string recipe_text;  // WithoutStorage of train.pbtxt
  uint64_t seed = 0;
  int64_t memory = 0;  // bytes that training was to take; 0 if run.json does not have it
  std::string data, data_hash;
  RunIdentity identity;                    // without parts if run.json has none
  std::shared_ptr<const v1::Study> study;  // to which the run belongs; null for a run alone
  Overrides model_values;                  // values of the study's grid that make the model
};

// Moves the lines of `text` that are a field without braces and for which `selects` returns true to
// the second text.
template <typename Selects>
std::pair<std::string, std::string> SplitLines(const std::string& text, const Selects& selects) {
  std::pair<std::string, std::string> parts;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const size_t colon = line.find(':');
    const bool selected =
        colon != absl::string_view::npos && selects(std::string(line.substr(0, colon)));
    absl::StrAppend(selected ? &parts.second : &parts.first, line, "\n");
  }
  return parts;
}

absl::StatusOr<FoundRun> ReadFoundRun(const std::string& directory) {
  FoundRun run;
  run.directory = directory;
  PLUMB_ASSIGN_OR_RETURN(run.model_text, ReadFile(RunModelPath(directory), kMaxTextBytes));
  std::tie(run.model_key, run.size_text) = SplitLines(
      run.model_text, [](const std::string& field) { return IsSetting("model." + field); });
  PLUMB_ASSIGN_OR_RETURN(const std::string recipe,
                         ReadFile(RunTrainPath(directory), kMaxTextBytes));
  run.recipe_text = WithoutStorage(recipe);
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(RunJsonPath(directory), kMaxStateBytes));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_whole = json.is_object() && json.contains("seed") &&
                        json["seed"].is_number_unsigned() && json.contains("data_hash") &&
                        json["data_hash"].is_string() && json.contains("data") &&
                        json["data"].is_string();
  if (!is_whole) {
    return absl::InvalidArgumentError(
        absl::StrCat(RunJsonPath(directory),
                     ": has no seed or no data; a report needs runs of plumb train or "
                     "plumb compare"));
  }
  run.seed = json["seed"];
  if (const auto memory = json.find("memory");
      memory != json.end() && memory->is_number_unsigned()) {
    run.memory = *memory;
  }
  run.data = json["data"];
  run.data_hash = json["data_hash"];
  absl::StatusOr<std::optional<RunIdentity>> identity = RunIdentity::FromRunJson(text);
  if (!identity.ok()) {
    return Annotate(identity.status(), absl::StrCat(RunJsonPath(directory), ": "));
  }
  if (identity->has_value()) run.identity = **std::move(identity);
  return run;
}

// Returns the values of the study's grid that make the model of one of its runs; none if the study
// does not list them. `spec` is the model.
absl::StatusOr<Overrides> ModelValues(const v1::Study& study, api::Spec spec) {
  Overrides values;
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ToStatus(spec.Text()));
  for (const v1::Grid& axis : study.grid()) {
    if (IsSetting(axis.field())) continue;
    std::string set;
    for (size_t i = 0; i < axis.value().size() && set != text; ++i) {
      // The value that the model has leaves it as it is.
      const std::string& value = axis.value()[i];
      const std::string field = axis.field().substr(axis.field().find('.') + 1);
      PLUMB_RETURN_IF_ERROR(SetField(field, value, &spec));
      PLUMB_ASSIGN_OR_RETURN(set, ToStatus(spec.Text()));
      if (set == text) values.emplace_back(axis.field(), value);
    }
    if (set != text) return Overrides{};
  }
  return values;
}

// Sorts the runs of a study as the study does, whose first model is the baseline, and sets their
// values of its grid.
absl::Status SortAsPlanned(const v1::Study& study, std::vector<FoundRun>* runs) {
  const auto place = [&study](const FoundRun& run) {
    const std::string name = std::filesystem::path(run.directory).filename().string();
    return std::find(study.group().begin(), study.group().end(),
                     name.substr(0, name.rfind("-seed"))) -
           study.group().begin();
  };
  std::stable_sort(runs->begin(), runs->end(),
                   [&place](const FoundRun& a, const FoundRun& b) { return place(a) < place(b); });
  std::map<std::string, Overrides> values;  // by model_key
  for (FoundRun& run : *runs) {
    auto known = values.find(run.model_key);
    if (known == values.end()) {
      PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(RunModelPath(run.directory)));
      PLUMB_ASSIGN_OR_RETURN(Overrides own, ModelValues(study, std::move(spec)));
      known = values.emplace(run.model_key, std::move(own)).first;
    }
    run.model_values = known->second;
  }
  return absl::OkStatus();
}

// Adds the runs of a path.
absl::Status AddFoundRuns(const std::string& path, std::vector<FoundRun>* runs) {
  std::vector<std::string> directories;
  std::shared_ptr<const v1::Study> study;
  if (IsRunDirectory(path)) {
    directories = {path};
  } else if (FileExists(JoinPath(path, "study.pbtxt")) && FileExists(JoinPath(path, "runs"))) {
    PLUMB_ASSIGN_OR_RETURN(const Study read, ReadStudy(JoinPath(path, "study.pbtxt")));
    study = std::make_shared<const v1::Study>(read.fields);
    if (study->group().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          "/study.pbtxt: does not record the order of its models, as of an earlier plumb; name the "
          "runs in ",
          path, "/runs, those of the baseline first"));
    }
    const std::string all = JoinPath(path, "runs");
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(all));
    for (const std::string& name : names) {
      if (IsRunDirectory(JoinPath(all, name))) directories.push_back(JoinPath(all, name));
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": is neither a run nor a study; name directories that plumb train or "
                     "plumb compare wrote"));
  }
  std::vector<FoundRun> found;
  for (const std::string& directory : directories) {
    PLUMB_ASSIGN_OR_RETURN(FoundRun run, ReadFoundRun(directory));
    run.study = study;
    const v1::Study::Match match = study == nullptr ? v1::Study::STEPS : study->match();
    if (match == v1::Study::FLOPS || match == v1::Study::TOKENS) {
      // The steps follow from the model, and are no setting.
      run.recipe_text = SplitLines(run.recipe_text, [](const std::string& field) {
                          return field == "max_steps" || field == "decay_steps";
                        }).first;
    }
    found.push_back(std::move(run));
  }
  if (study != nullptr) PLUMB_RETURN_IF_ERROR(SortAsPlanned(*study, &found));
  for (FoundRun& run : found) runs->push_back(std::move(run));
  return absl::OkStatus();
}

// Compares values of a setting: numbers by size, others by text.
bool IsBefore(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  const bool numbers = absl::SimpleAtod(a, &x) && absl::SimpleAtod(b, &y);
  return numbers ? x < y : a < b;
}

// Puts runs in order: models, cells, groups, seeds.
class Arranger {
 public:
  Arranger(std::vector<FoundRun> runs, HostRuntime* runtime)
      : runs_(std::move(runs)), runtime_(runtime) {}

  absl::StatusOr<FoundRuns> Arrange() {
    FindModels();
    FindSettings();
    FindSeeds();
    for (size_t model = 0; model < keys_.size(); ++model) {
      for (size_t cell = 0; cell < plan_.cells.size(); ++cell) {
        PLUMB_RETURN_IF_ERROR(AddGroup(model, cell));
      }
    }
    // A model has its name from its first run, which may be in a later cell.
    for (PlanGroup& group : plan_.groups) {
      group.name = plan_.models[group.model].name;
      if (!group.settings.empty()) absl::StrAppend(&group.name, ", ", CellName(group.settings));
    }
    PLUMB_RETURN_IF_ERROR(ReadRecords());
    FoundRuns found;
    found.plan = std::move(plan_);
    found.records = std::move(records_);
    return found;
  }

 private:
  void FindModels() {
    for (const FoundRun& run : runs_) {
      const auto known = std::find(keys_.begin(), keys_.end(), run.model_key);
      models_of_runs_.push_back(static_cast<size_t>(known - keys_.begin()));
      if (known == keys_.end()) keys_.push_back(run.model_key);
    }
  }

  // Sets the cells. A field of recipe or sizes is a setting if a model has several values of it;
  // otherwise it is a property of the model.
  void FindSettings() {
    std::vector<std::string> recipes, sizes;
    for (const FoundRun& run : runs_) {
      recipes.push_back(run.recipe_text);
      sizes.push_back(run.size_text);
    }
    values_of_runs_.resize(runs_.size());
    for (const FieldValues& field : Differences(sizes)) AddField("model.", field);
    for (const FieldValues& field : Differences(recipes)) AddField("train.", field);
    AddData();
    AddOtherInputs();
    for (const Overrides& values : values_of_runs_) {
      if (std::count(plan_.cells.begin(), plan_.cells.end(), values) == 0) {
        plan_.cells.push_back(values);
      }
    }
    std::sort(plan_.cells.begin(), plan_.cells.end(), [](const Overrides& a, const Overrides& b) {
      for (size_t i = 0; i < a.size(); ++i) {
        if (a[i].second != b[i].second) return IsBefore(a[i].second, b[i].second);
      }
      return false;
    });
  }

  // Adds the data as a field if it differs, by the path of each content. A path whose content has
  // changed since also has the hash.
  void AddData() {
    std::map<std::string, std::string> paths;             // by hash: the first path
    std::map<std::string, std::set<std::string>> hashes;  // by path
    for (const FoundRun& run : runs_) {
      const std::string& path = paths.emplace(run.data_hash, run.data).first->second;
      hashes[path].insert(run.data_hash);
    }
    if (paths.size() < 2) return;
    FieldValues data = {"data", {}};
    for (const FoundRun& run : runs_) {
      const std::string& path = paths[run.data_hash];
      data.second.push_back(hashes[path].size() == 1 ? path
                                                     : absl::StrCat(path, " ", run.data_hash));
    }
    AddField("", data);
  }

  // Adds the other inputs that differ between runs as fields: norms, tokenizers, plumb and others.
  void AddOtherInputs() {
    std::set<std::string> names;
    for (const FoundRun& run : runs_) {
      for (const auto& part : run.identity.parts()) names.insert(part.first);
    }
    // The texts of the files, seed and data are compared by others; these change no number.
    for (const char* const known : {"model", "recipe", "data", "seed", "probes", "samples"}) {
      names.erase(known);
    }
    for (const std::string& name : names) {
      FieldValues values = {name, {}};
      std::set<std::string> distinct;
      for (const FoundRun& run : runs_) {
        const std::string value = run.identity.Get(name);
        const char* const without = run.identity.parts().empty() ? "unknown" : "nothing";
        values.second.push_back(value.empty() ? without : value);
        // A model without this norm has another model's text, too.
        if (!value.empty() || !absl::StartsWith(name, "norm ")) distinct.insert(value);
      }
      if (distinct.size() > 1) AddField("", values);
    }
  }

  void AddField(const char* prefix, const FieldValues& field) {
    std::vector<std::set<std::string>> values(keys_.size());
    for (size_t i = 0; i < runs_.size(); ++i) {
      values[models_of_runs_[i]].insert(field.second[i]);
    }
    const bool is_setting = std::any_of(values.begin(), values.end(),
                                        [](const auto& of_model) { return of_model.size() > 1; });
    const std::string name = absl::StrCat(prefix, field.first);
    if (!is_setting) {
      plan_.warnings.push_back(
          absl::StrCat("the models were trained with different values of ", name));
      return;
    }
    std::vector<std::string> distinct;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const std::string& value = field.second[i];
      if (std::count(distinct.begin(), distinct.end(), value) == 0) distinct.push_back(value);
      values_of_runs_[i].emplace_back(name, value);
    }
    std::sort(distinct.begin(), distinct.end(), IsBefore);
    v1::Grid* const axis = plan_.study.add_grid();
    axis->set_field(name);
    for (const std::string& value : distinct) axis->add_value(value);
  }

  // Sets the seeds and how they are used: those of one study as that study uses them.
  void FindSeeds() {
    std::set<uint64_t> seeds;
    for (const FoundRun& run : runs_) seeds.insert(run.seed);
    plan_.study.set_data(runs_.front().data);
    const auto* const study = runs_.front().study.get();
    const bool is_one = std::all_of(runs_.begin(), runs_.end(), [study](const FoundRun& run) {
      return run.study.get() == study;
    });
    if (study != nullptr && is_one) {
      for (const uint64_t seed : GetSeeds(*study)) {
        if (seeds.erase(seed) > 0) plan_.seeds.push_back(seed);
      }
      plan_.study.set_choosing_seeds(study->choosing_seeds());
      plan_.study.set_margin(study->margin());
    }
    plan_.seeds.insert(plan_.seeds.end(), seeds.begin(), seeds.end());
  }

  // Returns the first run of a group, or null.
  const FoundRun* FindFirst(size_t model, size_t cell) const {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (models_of_runs_[i] == model && values_of_runs_[i] == plan_.cells[cell]) return &runs_[i];
    }
    return nullptr;
  }

  absl::Status AddGroup(size_t model, size_t cell) {
    PlanGroup group;
    group.model = model;
    group.cell = cell;
    group.settings = plan_.cells[cell];
    group.unigram_entropies.assign(plan_.seeds.size(), kNaN);
    if (plan_.models.size() == model) plan_.models.push_back({"", "", {}, {}, "", ""});
    if (const FoundRun* const run = FindFirst(model, cell); run != nullptr) {
      PLUMB_RETURN_IF_ERROR(Describe(*run, &group));
    }
    plan_.groups.push_back(std::move(group));
    return absl::OkStatus();
  }

  absl::Status Describe(const FoundRun& run, PlanGroup* group) {
    const std::string path = RunModelPath(run.directory), recipe_path = RunTrainPath(run.directory);
    PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(path));
    PLUMB_ASSIGN_OR_RETURN(GroupModel made, MakeGroupModel(spec, runtime_));
    static_cast<ModelFacts&>(*group) = made.facts;
    group->memory.total = run.memory;
    PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(recipe_path, {}));
    group->training.train_text = recipe.text;
    PLUMB_RETURN_IF_ERROR(CountFrozen(made.model, group));
    group->training.max_steps = recipe.fields.max_steps();
    group->training.data_hash = run.data_hash;
    const int64_t context = made.description["dims"]["context_length"];
    DescribeData(run, recipe_path, context, group);
    PlanModel& model = plan_.models[group->model];
    if (!model.name.empty()) return absl::OkStatus();
    model.name = made.description["name"];
    if (run.study != nullptr) {
      model.values = run.model_values;
      model.name = ModelName(*run.study, model.name, model.values);
    }
    if (!names_.insert(model.name).second) {
      absl::StrAppend(&model.name, " (", run.directory, ")");
    }
    model.file = path;
    model.description = std::move(made.description);
    model.text = std::move(made.text);
    model.picture = DrawModel(made.model).value_or("");
    return absl::OkStatus();
  }

  // Sets the facts that come from the data, if those are still where they were.
  void DescribeData(const FoundRun& run, const std::string& recipe_path, int64_t context,
                    PlanGroup* group) {
    const absl::StatusOr<TrainingPreview> preview =
        PreviewTraining(run.data, recipe_path, {}, plan_.datasets.get());
    if (!preview.ok() || preview->data_hash != run.data_hash) {
      const std::string warning = absl::StrCat(
          run.data,
          ": is not what the runs were trained on, so that collapsed runs are not counted");
      WarnOnce(warning);
      return;
    }
    group->training.data = preview->data;
    const absl::StatusOr<std::vector<double>> entropies =
        UnigramEntropies(run.data, recipe_path, {}, context, LossSummary::kLastSteps, plan_.seeds,
                         plan_.datasets.get());
    if (entropies.ok()) group->unigram_entropies = *entropies;
  }

  absl::Status ReadRecords() {
    std::map<std::pair<size_t, uint64_t>, std::vector<const FoundRun*>> found;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const auto cell = std::find(plan_.cells.begin(), plan_.cells.end(), values_of_runs_[i]);
      const size_t group =
          models_of_runs_[i] * plan_.cells.size() + static_cast<size_t>(cell - plan_.cells.begin());
      found[{group, runs_[i].seed}].push_back(&runs_[i]);
    }
    for (size_t group = 0; group < plan_.groups.size(); ++group) {
      bool has_validation = true;
      for (const uint64_t seed : plan_.seeds) {
        const std::vector<const FoundRun*>& same = found[{group, seed}];
        PlanRun run;
        run.group = group;
        run.seed = seed;
        if (!same.empty()) {
          run.directory = same.front()->directory;
          run.identity = same.front()->identity;
        }
        RunRecord record;
        record.is_present = !same.empty();
        for (const FoundRun* one : same) {
          PLUMB_ASSIGN_OR_RETURN(RunRecord own, ReadRecord(*one));
          if (one != same.front() &&
              (own.losses != record.losses || own.validation != record.validation)) {
            return absl::InvalidArgumentError(
                absl::StrCat(one->directory,
                             ": is another run of the same model, recipe and seed "
                             "as ",
                             same.front()->directory, "; drop one of them"));
          }
          record = std::move(own);
        }
        if (record.result.status == RunStatus::kFinished && record.is_present &&
            !record.result.validation) {
          has_validation = false;
        }
        plan_.runs.push_back(std::move(run));
        records_.push_back(std::move(record));
      }
      plan_.groups[group].training.has_validation = has_validation;
    }
    return absl::OkStatus();
  }

  void WarnOnce(const std::string& warning) {
    if (std::count(plan_.warnings.begin(), plan_.warnings.end(), warning) > 0) return;
    plan_.warnings.push_back(warning);
  }

  absl::StatusOr<RunRecord> ReadRecord(const FoundRun& found) {
    PLUMB_ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(found.directory));
    if (record.result.status == RunStatus::kInterrupted) {
      plan_.warnings.push_back(absl::StrCat(found.directory, ": ", record.result.message,
                                            "; it is listed, and not part of any mean or test"));
    }
    if (record.result.status == RunStatus::kFinished && !record.result.validation &&
        !record.validation.empty()) {
      WarnOnce(
          "validation losses of runs of plumb train are over eval_batches batches, not over the "
          "whole split, so that all models are compared by the losses of training");
    }
    return record;
  }

  const std::vector<FoundRun> runs_;
  HostRuntime* const runtime_;
  std::vector<std::string> keys_;          // one per model
  std::vector<size_t> models_of_runs_;     // parallel to runs_
  std::vector<Overrides> values_of_runs_;  // parallel to runs_
  std::set<std::string> names_;
  StudyPlan plan_;
  std::vector<RunRecord> records_;
};

}  // namespace

absl::StatusOr<FoundRuns> FindRuns(const std::vector<std::string>& paths, HostRuntime* runtime) {
  std::vector<FoundRun> runs;
  for (const std::string& path : paths) PLUMB_RETURN_IF_ERROR(AddFoundRuns(path, &runs));
  if (runs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(paths, ", "), ": no run has begun"));
  }
  return Arranger(std::move(runs), runtime).Arrange();
}

}  // namespace plumb
