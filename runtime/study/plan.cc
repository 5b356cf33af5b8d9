// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/schema/reader.h"
#include "runtime/study/run_record.h"
#include "runtime/train/loss_summary.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxRuns = 100000;
constexpr int kMaxExtensions = 6;  // of a range, to either side

// Returns `name`, with a number added if it is taken. Ignores case, as some file systems do.
std::string Unique(const std::string& name, const char* before, const char* after,
                   std::set<std::string>* taken) {
  std::string unique = name;
  for (int i = 2; !taken->insert(absl::AsciiStrToLower(unique)).second; ++i) {
    unique = absl::StrCat(name, before, i, after);
  }
  return unique;
}

// Returns every combination of the grid's values, the last field varying fastest; a single empty
// one without a grid.
std::vector<Overrides> Combinations(const std::vector<v1::Grid>& grid) {
  std::vector<Overrides> combinations = {{}};
  for (const v1::Grid& axis : grid) {
    std::vector<Overrides> longer;
    for (const Overrides& combination : combinations) {
      for (const std::string& value : axis.value()) {
        longer.push_back(combination);
        longer.back().emplace_back(axis.field(), value);
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

// Replaces the range of a study, a pair of learning rates "0.005..0.02", by rates that are a factor
// of two apart from the first rate on, and so many below and above them as it may be extended by.
absl::Status ExpandRange(const std::vector<std::string>& places, StudyPlan* plan) {
  std::vector<v1::Grid> grid = plan->study.grid();
  CellRange tried;
  size_t settings = 0;
  for (size_t a = 0; a < grid.size(); ++a) {
    settings += IsSetting(grid[a].field()) ? 1 : 0;
    const auto text =
        std::find_if(grid[a].value().begin(), grid[a].value().end(),
                     [](const std::string& value) { return absl::StrContains(value, ".."); });
    if (text == grid[a].value().end()) continue;
    const auto fail = [&](const char* what) {
      return absl::InvalidArgumentError(absl::StrCat(places[a], ": ", *text, " ", what));
    };
    if (!absl::EndsWith(grid[a].field(), "learning_rate")) {
      return fail("is a range, which only learning rates have; list the values");
    }
    if (grid[a].value().size() > 1) return fail("is a range, and the only value of its field");
    const std::pair<std::string, std::string> ends =
        absl::StrSplit(*text, absl::MaxSplits("..", 1));
    double low = 0, high = 0;
    if (!absl::SimpleAtod(ends.first, &low) || !absl::SimpleAtod(ends.second, &high) ||
        !(low > 0 && low < high && high <= 1e6 * low)) {
      return fail("must be two rates above 0, the lower one first, such as 0.005..0.02");
    }
    plan->range = *text;
    grid[a].clear_value();
    tried = {kMaxExtensions, kMaxExtensions};
    // A rate that is off the end by rounding alone is in the range.
    while (std::ldexp(low, static_cast<int>(tried.last) - kMaxExtensions + 1) < high * 1.0001) {
      ++tried.last;
    }
    for (int i = 0; i <= static_cast<int>(tried.last) + kMaxExtensions; ++i) {
      grid[a].add_value(absl::StrCat(std::ldexp(low, i - kMaxExtensions)));
    }
  }
  if (plan->range.empty()) return absl::OkStatus();
  if (settings > 1) {
    return absl::InvalidArgumentError(absl::StrCat("--grid: a study with the range ", plan->range,
                                                   " has no other setting; list the rates"));
  }
  if (plan->seeds.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--grid: the range ", plan->range,
                     " needs two seeds: one chooses the rate, the other compares the models"));
  }
  plan->study.clear_grid();
  for (const v1::Grid& axis : grid) *plan->study.add_grid() = axis;
  plan->tried = {tried};  // of each model
  return absl::OkStatus();
}

class Planner {
 public:
  Planner(const Study& study, StudyPlan* plan, HostRuntime* runtime)
      : places_(study), plan_(*plan), runtime_(runtime) {}

  absl::Status Check() {
    const v1::Study& study = plan_.study;
    if (study.choosing_seeds() >= static_cast<int64_t>(plan_.seeds.size())) {
      return absl::InvalidArgumentError(absl::StrCat("--choosing-seeds ", study.choosing_seeds(),
                                                     ": no seed is left to compare the "
                                                     "models; give more than that with --seeds"));
    }
    if (study.model_size() == 0) {
      return absl::InvalidArgumentError(
          "MODEL is missing; write plumb compare A.pbtxt B.pbtxt --data FILE --out DIR");
    }
    if (study.data().empty())
      return absl::InvalidArgumentError("--data is missing; write --data FILE");
    PLUMB_RETURN_IF_ERROR(CheckNoPlacements());
    size_t runs = study.model().size() * plan_.seeds.size();
    std::set<std::string> fields;
    for (size_t a = 0; a < study.grid().size(); ++a) {
      const v1::Grid& axis = study.grid()[a];
      const std::string& place = places_.grid_places[a];
      if (!fields.insert(axis.field()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": ", axis.field(), " is in the grid already"));
      }
      if (std::count(axis.value().begin(), axis.value().end(), "") > 0) {
        return absl::InvalidArgumentError(absl::StrCat(place, ": a value is missing"));
      }
      runs *= axis.value().size();
      if (runs > kMaxRuns) {
        return absl::InvalidArgumentError(
            absl::StrCat("this study has more than ", kMaxRuns,
                         " runs; give fewer seeds, or fewer values of the grid"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddGroups() {
    std::vector<v1::Grid> of_models, of_cells;
    for (const v1::Grid& axis : plan_.study.grid()) {
      (IsSetting(axis.field()) ? of_cells : of_models).push_back(axis);
    }
    plan_.cells = Combinations(of_cells);
    for (const std::string& file : plan_.study.model()) {
      for (const Overrides& values : Combinations(of_models)) {
        plan_.models.push_back({"", file, values, {}, "", ""});
        for (size_t cell = 0; cell < plan_.cells.size(); ++cell) {
          PLUMB_RETURN_IF_ERROR(AddGroup(plan_.models.size() - 1, cell));
        }
      }
    }
    return CheckValuesDiffer();
  }

 private:
  // Fails if placements are named as if they were models, with the option that compares them.
  absl::Status CheckNoPlacements() const {
    std::vector<std::string> names;
    for (const std::string& file : plan_.study.model()) {
      if (!FileExists(file) && FindPlacement(*runtime_, file).ok()) names.push_back(file);
    }
    if (names.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(names, ", "),
                     ": placements, not files of models; to train a model with each of them, write "
                     "plumb compare MODEL.pbtxt --grid model.block.placement=",
                     absl::StrJoin(names, ",")));
  }

  // Returns the value of a grid's field in a model or a cell.
  static std::string GetValue(const std::string& field, const PlanModel& model,
                              const Overrides& cell) {
    for (const Overrides* values : {&model.values, &cell}) {
      for (const auto& [name, value] : *values) {
        if (name == field) return value;
      }
    }
    return "";
  }

  absl::Status AddGroup(size_t index, size_t cell) {
    PlanModel& model = plan_.models[index];
    PlanGroup group;
    group.model = index;
    group.cell = cell;
    PLUMB_ASSIGN_OR_RETURN(const GroupModel* made, Make(&group, {}));
    if (index > 0) {
      PLUMB_ASSIGN_OR_RETURN(const Overrides matching, Match(plan_.groups[cell], group, *made));
      if (!matching.empty()) {
        PLUMB_ASSIGN_OR_RETURN(made, Make(&group, matching));
      }
    }
    if (model.name.empty()) {
      const std::string name = ModelName(plan_.study, made->description["name"], model.values);
      model.name = Unique(name, " (", ")", &model_names_);
      model.description = made->description;
      model.text = made->text;
      // A model that cannot be drawn can still be trained.
      model.picture = DrawModel(made->model).value_or("");
    }
    group.name = model.name;
    if (!plan_.cells[cell].empty()) {
      absl::StrAppend(&group.name, ", ", CellName(plan_.cells[cell]));
    }
    group.directory = Unique(DirectoryName(group.name), "-", "", &directories_);
    trained_.push_back(TrainedHash(*made, group));
    plan_.groups.push_back(std::move(group));
    return absl::OkStatus();
  }

  // Returns a hash of what a group trains, which is equal for all spellings of a value.
  static std::string TrainedHash(const GroupModel& made, const PlanGroup& group) {
    api::ExplainOptions options;
    options.stage = api::Stage::kUpdates;
    options.recipe = group.training.train_text;
    // TryTraining reports the error of a recipe that does not fit the model.
    const std::string updates = ToStatus(made.model.Explain(options)).value_or("");
    return Sha256(absl::StrCat(made.resolved, updates, group.training.train_text));
  }

  // Fails if two values of a field are the same number, or train the same in all groups: each model
  // would then be trained, and counted by Holm's correction, twice.
  absl::Status CheckValuesDiffer() const {
    for (size_t a = 0; a < plan_.study.grid().size(); ++a) {
      const v1::Grid& axis = plan_.study.grid(static_cast<int>(a));
      // Hashes of the groups with each value, ordered by the other fields' values.
      std::map<std::string, std::vector<std::string>> trained;
      for (size_t i = 0; i < plan_.groups.size(); ++i) {
        trained[plan_.groups[i].settings[a].second].push_back(trained_[i]);
      }
      for (auto value = axis.value().begin(); value != axis.value().end(); ++value) {
        const auto equal = std::find_if(axis.value().begin(), value, [&](const std::string& other) {
          double x, y;
          return trained.at(other) == trained.at(*value) ||
                 (absl::SimpleAtod(other, &x) && absl::SimpleAtod(*value, &y) && x == y);
        });
        if (equal == value) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(places_.grid_places[a], ": ", axis.field(), "=", *equal, " and ",
                         axis.field(), "=", *value, " train the same; drop one of them"));
      }
    }
    return absl::OkStatus();
  }

  // Makes the model of a group with the study's settings, its values of the grid, and `matching`,
  // and sets the group's facts about model and recipe. The model is valid until the next call.
  absl::StatusOr<const GroupModel*> Make(PlanGroup* group, const Overrides& matching) {
    const PlanModel& model = plan_.models[group->model];
    PLUMB_ASSIGN_OR_RETURN(api::Spec spec, ReadSpec(model.file));
    group->settings.clear();
    group->model_overrides.clear();
    group->train_overrides.clear();
    for (size_t i = 0; i < plan_.study.set().size(); ++i) {
      const auto [field, value] = SplitSetting(plan_.study.set()[i]);
      PLUMB_RETURN_IF_ERROR(Apply(places_.set_places[i], field, value, &spec, group));
    }
    for (size_t a = 0; a < plan_.study.grid().size(); ++a) {
      const std::string& field = plan_.study.grid()[a].field();
      const std::string value = GetValue(field, model, plan_.cells[group->cell]);
      group->settings.emplace_back(field, value);
      PLUMB_RETURN_IF_ERROR(Apply(places_.grid_places[a], field, value, &spec, group));
    }
    for (const auto& [field, value] : matching) {
      PLUMB_RETURN_IF_ERROR(Apply("--match", field, value, &spec, group));
    }
    PLUMB_ASSIGN_OR_RETURN(const TrainingPreview* const training, Preview(group->train_overrides));
    group->training = *training;
    if (GetVocabSize(spec) == 0) {
      PLUMB_RETURN_IF_ERROR(ToStatus(spec.Set("vocab_size", group->training.vocab_size)));
    }
    PLUMB_ASSIGN_OR_RETURN(const std::string text, ToStatus(spec.Text()));
    if (text != made_text_ || model.file != made_file_ || !made_.has_value()) {
      PLUMB_ASSIGN_OR_RETURN(made_, MakeGroupModel(spec, runtime_));
      made_text_ = text;
      made_file_ = model.file;  // a model without a name has that of its file
    }
    static_cast<ModelFacts&>(*group) = made_->facts;
    PLUMB_RETURN_IF_ERROR(CountFrozen(made_->model, group));
    return &*made_;
  }

  // Returns the fields to set so that `group` costs what `reference`, the first model's group in
  // the same cell, does: by `match` its number of steps, or its d_ff.
  absl::StatusOr<Overrides> Match(const PlanGroup& reference, const PlanGroup& group,
                                  const GroupModel& made) {
    const bool by_flops = plan_.study.match() == v1::Study::FLOPS;
    if (by_flops || plan_.study.match() == v1::Study::TOKENS) {
      double ratio = by_flops ? reference.flops_per_token / group.flops_per_token : 1;
      if (group.context_length != reference.context_length) {
        if (group.training.has_documents) {
          return absl::InvalidArgumentError(absl::StrCat(
              "--match ", by_flops ? "flops" : "tokens",
              ": the models have different contexts, and how many tokens of a document fit into "
              "each differs; match by steps"));
        }
        ratio *= static_cast<double>(reference.context_length) /
                 static_cast<double>(group.context_length);
      }
      if (ratio == 1) return Overrides{};
      const double steps = ratio * static_cast<double>(reference.training.max_steps);
      return Overrides{
          {"train.max_steps", absl::StrCat(std::max<int64_t>(1, std::llround(steps)))}};
    }
    if (plan_.study.match() == v1::Study::PARAMETERS && group.parameters != reference.parameters) {
      return MatchParameters(reference, group, made);
    }
    return Overrides{};
  }

  absl::StatusOr<Overrides> MatchParameters(const PlanGroup& reference, const PlanGroup& group,
                                            const GroupModel& made) {
    const int64_t d_ff = made.description["dims"]["d_ff"];
    const auto with = [](int64_t width) { return Overrides{{"model.d_ff", absl::StrCat(width)}}; };
    // The number of parameters is linear in d_ff.
    PlanGroup wider = group;
    PLUMB_RETURN_IF_ERROR(Make(&wider, with(d_ff + 1)).status());
    const int64_t slope = wider.parameters - group.parameters;
    if (slope <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--match parameters: the size of ", plan_.models[group.model].file,
          " does not depend on d_ff, perhaps because its MLPs set their own; match by hand"));
    }
    const double width =
        static_cast<double>(d_ff) +
        static_cast<double>(reference.parameters - group.parameters) / static_cast<double>(slope);
    if (width < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--match parameters: ", plan_.models[group.model].file, " has ",
          WithCommas(group.parameters), " parameters, and no d_ff makes it as small as ",
          plan_.models[reference.model].name, " with ", WithCommas(reference.parameters)));
    }
    return with(std::llround(width));
  }

  absl::Status Apply(const std::string& place, const std::string& field, const std::string& value,
                     api::Spec* spec, PlanGroup* group) {
    const std::string name = field.substr(field.find('.') + 1);
    if (absl::StartsWith(field, "train.")) {
      group->train_overrides.emplace_back(name, value);
      return absl::OkStatus();
    }
    group->model_overrides.emplace_back(name, value);
    return Annotate(SetField(name, value, spec), absl::StrCat(place, ": "));
  }

  // Reads the data once for each distinct recipe of the grid.
  absl::StatusOr<const TrainingPreview*> Preview(const Overrides& overrides) {
    const auto found = previews_.find(overrides);
    if (found != previews_.end()) return &found->second;
    PLUMB_ASSIGN_OR_RETURN(
        TrainingPreview preview,
        PreviewTraining(plan_.study.data(), plan_.study.train(), overrides, plan_.datasets.get()));
    return &previews_.emplace(overrides, std::move(preview)).first->second;
  }

  const Study& places_;
  StudyPlan& plan_;
  HostRuntime* runtime_;
  std::set<std::string> model_names_, directories_;
  std::vector<std::string> trained_;  // TrainedHash of each group
  std::map<Overrides, TrainingPreview> previews_;
  // The last model made, and its description: cells that differ in the recipe share it.
  std::optional<GroupModel> made_;
  std::string made_text_, made_file_;
};

// Sets the unigram entropies of the groups' last steps. Reads the data once for all groups that
// have the same recipe and context.
absl::Status SetEntropies(StudyPlan* plan) {
  std::map<std::pair<Overrides, int64_t>, std::vector<double>> known;
  for (size_t i = 0; i < plan->groups.size(); ++i) {
    PlanGroup& group = plan->groups[i];
    std::vector<double>& entropies = known[{group.train_overrides, group.context_length}];
    if (entropies.empty()) {
      PLUMB_ASSIGN_OR_RETURN(
          std::vector<double> made,
          UnigramEntropies(plan->study.data(), plan->study.train(), group.train_overrides,
                           group.context_length, LossSummary::kLastSteps, plan->seeds,
                           plan->datasets.get()));
      entropies = std::move(made);
    }
    group.unigram_entropies = entropies;
  }
  return absl::OkStatus();
}

// Checks that a group's model can be trained on the data, and sets the group's memory and disk
// needs.
absl::Status TryTraining(size_t index, HostRuntime* runtime, StudyPlan* plan) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainRun> run,
                         OpenWithoutFiles(*plan, index, runtime));
  PlanGroup& group = plan->groups[index];
  group.memory = run->info().memory;
  group.disk = run->info().disk;
  return absl::OkStatus();
}

// Returns a warning for each model that equals an earlier one, recipe included.
std::vector<std::string> WarnOfEqualModels(const StudyPlan& plan) {
  std::vector<std::string> warnings;
  std::map<std::string, size_t> first;
  for (const PlanGroup& group : plan.groups) {
    if (group.cell != 0) continue;
    const auto [found, added] =
        first.emplace(absl::StrCat(group.fingerprint, group.training.train_text), group.model);
    if (added) continue;
    warnings.push_back(absl::StrCat(plan.models[group.model].name, " is the same model as ",
                                    plan.models[found->second].name, "; their differences are 0"));
  }
  return warnings;
}

RunIdentity MakeIdentity(const v1::Study& study, const PlanGroup& group, const std::string& init,
                         uint64_t seed) {
  RunInputs inputs;
  inputs.model = group.text;
  inputs.recipe = group.training.train_text;
  inputs.data = group.training.data_hash;
  inputs.tokenizer = group.training.tokenizer_hash;
  inputs.norms = group.norms;
  inputs.init = init;
  inputs.seed = seed;
  inputs.probe = {study.probe_every(), study.probe_point()};
  inputs.samples = study.samples();
  return RunIdentity::Of(inputs);
}

// Bytes that a run needs besides its steps: the data, and a thread whose heap reserves as much of
// the address space in the C library.
constexpr int64_t kRunOverheadBytes = int64_t{64} << 20;

}  // namespace

std::string DirectoryName(const std::string& name) {
  std::string plain;
  for (char c : name) {
    const bool keep = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                      absl::string_view("-_.=").find(c) != absl::string_view::npos ||
                      static_cast<unsigned char>(c) >= 0x80;
    if (keep) plain.push_back(c);
    if (!keep && !plain.empty() && plain.back() != '-') plain.push_back('-');
  }
  // Leaves room for the seed in a file name of 255 bytes.
  if (plain.size() > 200)
    plain = absl::StrCat(plain.substr(0, 180), "-", Sha256(name).substr(0, 12));
  if (plain.empty() || plain.front() == '.') plain.insert(0, "_");
  return plain;
}

absl::StatusOr<StudyPlan> MakePlan(const Study& placed, const std::string& out,
                                   HostRuntime* runtime) {
  const v1::Study& study = placed.fields;
  StudyPlan plan;
  plan.study = study;
  plan.seeds = GetSeeds(study);
  plan.out = out;
  PLUMB_RETURN_IF_ERROR(ExpandRange(placed.grid_places, &plan));
  Planner planner(placed, &plan, runtime);
  PLUMB_RETURN_IF_ERROR(planner.Check());
  PLUMB_RETURN_IF_ERROR(planner.AddGroups());
  const CellRange all = {0, plan.cells.size() - 1};
  plan.tried.assign(plan.models.size(), plan.range.empty() ? all : plan.tried.front());
  plan.warnings = WarnOfEqualModels(plan);
  const std::string& advice = plan.groups.front().training.data_advice;
  if (!advice.empty()) plan.warnings.push_back(advice);
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    PLUMB_RETURN_IF_ERROR(TryTraining(group, runtime, &plan));
  }
  PLUMB_RETURN_IF_ERROR(SetEntropies(&plan));
  PLUMB_ASSIGN_OR_RETURN(const std::string init, IdentifyWeights(study.init()));
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    for (uint64_t seed : plan.seeds) {
      plan.runs.push_back({group, seed,
                           absl::StrCat(out, "/runs/", plan.groups[group].directory, "-seed", seed),
                           MakeIdentity(study, plan.groups[group], init, seed)});
    }
  }
  // Which cells are the best is not known yet; the first ones have as many runs.
  plan.SkipExcept(std::vector<size_t>(plan.models.size(), plan.tried.front().first));
  return plan;
}

absl::StatusOr<GroupModel> MakeGroupModel(const api::Spec& spec, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(api::Model model, CreateModel(runtime, spec));
  PLUMB_ASSIGN_OR_RETURN(Json description, DescribeModel(model));
  PLUMB_ASSIGN_OR_RETURN(const std::string graph, ExplainModel(model, "graph", 1, 1));
  PLUMB_ASSIGN_OR_RETURN(std::string text, ToStatus(spec.Text()));
  ModelFacts facts;
  PLUMB_ASSIGN_OR_RETURN(facts.text, ToStatus(model.Text()));
  facts.fingerprint = Sha256(absl::StrCat(facts.text, graph)).substr(0, 16);
  PLUMB_ASSIGN_OR_RETURN(facts.norms, IdentifyNorms(runtime, model));
  facts.parameters = description["totals"]["parameters"];
  facts.context_length = description["dims"]["context_length"];
  PLUMB_ASSIGN_OR_RETURN(
      const api::Work work,
      ToStatus(model.Work(api::Pass::kTraining, facts.context_length, api::Weights::kF32)));
  facts.flops_per_token = work.flops / static_cast<double>(facts.context_length);
  std::string resolved = Sha256(absl::StrCat(description.dump(), graph));
  return GroupModel{std::move(model), std::move(description), std::move(text), std::move(resolved),
                    std::move(facts)};
}

absl::Status CountFrozen(const api::Model& model, PlanGroup* group) {
  const std::string& recipe = group->training.train_text;
  if (!absl::StrContains(recipe, "freeze")) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const api::Work work,
                         ToStatus(model.Work(api::Pass::kTraining, group->context_length,
                                             api::Weights::kF32, recipe)));
  group->flops_per_token = work.flops / static_cast<double>(group->context_length);
  return absl::OkStatus();
}

std::string CellName(const Overrides& cell) {
  return absl::StrJoin(cell, ", ", [](std::string* out, const auto& setting) {
    absl::StrAppend(out, setting.first.substr(setting.first.find('.') + 1), "=", setting.second);
  });
}

std::string ModelName(const v1::Study& study, const std::string& name, const Overrides& values) {
  if (values.empty()) return name;
  if (study.model_size() > 1) return absl::StrCat(name, ", ", CellName(values));
  return absl::StrJoin(values, ", ", [](std::string* out, const auto& setting) {
    absl::StrAppend(out, setting.second);
  });
}

std::string AbsolutePath(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::StatusOr<std::unique_ptr<TrainRun>> OpenWithoutFiles(const StudyPlan& plan, size_t group,
                                                           HostRuntime* runtime) {
  TrainRequest request = plan.Request({group, plan.seeds.front(), "", {}});
  request.resume = false;
  return TrainRun::Open(runtime, request);
}

void StudyPlan::SkipExcept(const std::vector<size_t>& cell_of_model) {
  is_skipped.assign(runs.size(), false);
  for (size_t i = 0; i < runs.size(); ++i) {
    const PlanGroup& group = groups[runs[i].group];
    const auto index = static_cast<int64_t>(i % seeds.size());  // of the seed
    const bool judges = chooses() && index >= study.choosing_seeds();
    const CellRange& cells_of_model = tried[group.model];
    is_skipped[i] = group.cell < cells_of_model.first || group.cell > cells_of_model.last ||
                    (judges && group.cell != cell_of_model[group.model]);
  }
}

bool StudyPlan::ExtendTried(const std::vector<size_t>& best_cells) {
  bool extended = false;
  for (size_t model = 0; model < models.size(); ++model) {
    CellRange& range_of_model = tried[model];
    if (best_cells[model] == range_of_model.first && range_of_model.first > 0) {
      --range_of_model.first;
      extended = true;
    } else if (best_cells[model] == range_of_model.last && range_of_model.last + 1 < cells.size()) {
      ++range_of_model.last;
      extended = true;
    }
  }
  return extended;
}

void StudyPlan::DropUntriedCells() {
  CellRange used = tried.front();
  for (const CellRange& own : tried) {
    used = {std::min(used.first, own.first), std::max(used.last, own.last)};
  }
  const auto is_used = [&used](size_t cell) { return cell >= used.first && cell <= used.last; };
  const std::vector<PlanGroup> all_groups = std::move(groups);
  const std::vector<PlanRun> all_runs = std::move(runs);
  const std::vector<bool> were_skipped = std::move(is_skipped);
  groups.clear();
  runs.clear();
  is_skipped.clear();
  for (size_t i = 0; i < all_runs.size(); ++i) {
    const PlanGroup& group = all_groups[all_runs[i].group];
    if (!is_used(group.cell)) continue;
    if (i % seeds.size() == 0) {
      groups.push_back(group);
      groups.back().cell -= used.first;
    }
    runs.push_back(all_runs[i]);
    runs.back().group = groups.size() - 1;
    is_skipped.push_back(were_skipped[i]);
  }
  cells = {cells.begin() + static_cast<std::ptrdiff_t>(used.first),
           cells.begin() + static_cast<std::ptrdiff_t>(used.last) + 1};
  for (CellRange& own : tried) own = {own.first - used.first, own.last - used.first};
}

TrainRequest StudyPlan::Request(const PlanRun& run) const {
  const PlanGroup& group = groups[run.group];
  TrainRequest request;
  request.model_path = models[group.model].file;
  request.data_path = study.data();
  request.train_path = study.train();
  request.init = study.init();
  request.model_overrides = group.model_overrides;
  request.train_overrides = group.train_overrides;
  request.seed = run.seed;
  request.out = run.directory;
  request.resume = true;
  request.probe.every = study.probe_every();
  request.probe.points = study.probe_point();
  request.samples = study.samples();
  request.datasets = datasets.get();
  if (!study.keep_checkpoints()) {
    const size_t judged = chooses() ? static_cast<size_t>(study.choosing_seeds()) : 0;
    const bool is_first = judged < seeds.size() && run.seed == seeds[judged];
    request.last_checkpoint = is_first ? LastCheckpoint::kWeights : LastCheckpoint::kNone;
  }
  return request;
}

std::string StudyPlan::StudyText() const {
  v1::Study absolute = study;
  absolute.clear_model();
  for (const std::string& model : study.model()) absolute.add_model(AbsolutePath(model));
  absolute.set_data(AbsolutePath(study.data()));
  absolute.set_train(AbsolutePath(study.train()));
  absolute.set_init(AbsolutePath(study.init()));
  absolute.clear_grid();
  for (const v1::Grid& axis : study.grid()) {
    v1::Grid* const own = absolute.add_grid();
    *own = axis;
    if (range.empty() || !IsSetting(axis.field())) continue;
    own->clear_value();
    own->add_value(range);
  }
  absolute.clear_group();
  for (const PlanGroup& group : groups) absolute.add_group(group.directory);
  return absl::StrCat(
      "# The study that plumb compare ran. run.json of each run next to this file identifies its "
      "inputs.\n",
      textproto::PrintText(absolute));
}

StudyDivision Divide(int threads, size_t runs, int64_t memory, int64_t available) {
  int64_t workers = std::min<int64_t>(threads, static_cast<int64_t>(runs));
  if (memory > 0) workers = std::min(workers, available / 4 * 3 / (memory + kRunOverheadBytes));
  StudyDivision division;
  division.workers = static_cast<int>(std::max<int64_t>(1, workers));
  division.threads = std::max(1, threads / division.workers);
  return division;
}

absl::StatusOr<StudyRequirements> ComputeRequirements(const StudyPlan& plan, int threads) {
  StudyRequirements out;
  out.memory_limit = ProcessMemoryLimit();
  int64_t memory = 0;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (!plan.Has(i)) continue;
    ++out.runs;
    const PlanRun& run = plan.runs[i];
    PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> result, ReadRunResult(run.directory));
    if (result.has_value()) {
      ++out.ended;
      continue;
    }
    const PlanGroup& group = plan.groups[run.group];
    memory = std::max(memory, group.memory.total);
    // A run that has begun has most of its files on the disk: a new checkpoint replaces an old one.
    const bool begun = FileExists(absl::StrCat(run.directory, "/model.pbtxt"));
    out.disk += begun ? group.disk.checkpoint : group.disk.total;
  }
  out.free_disk = FreeSpace(plan.out);
  out.division = Divide(threads, out.runs - out.ended, memory, out.memory_limit.available);
  out.memory = memory * out.division.workers;
  return out;
}

absl::Status CheckFits(const StudyRequirements& requirements, const StudyPlan& plan) {
  if (requirements.free_disk < 0 || requirements.disk <= requirements.free_disk) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(plan.out, ": the disk has ", Bytes(requirements.free_disk), " left, and ",
                   Count(static_cast<int64_t>(requirements.runs - requirements.ended), "run"),
                   " write ", Bytes(requirements.disk), "; free some, or choose another --out"));
}

}  // namespace plumb
