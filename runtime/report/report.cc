// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/process.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text_format.h"
#include "runtime/base/utf8.h"
#include "runtime/report/conclusion.h"
#include "runtime/report/curve_points.h"
#include "runtime/report/pack_report.h"
#include "runtime/report/tables.h"
#include "runtime/study/results.h"
#include "runtime/study/text_fields.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

// Max number of steps in the panes that show both ends of a run; each shows at most a quarter of
// it.
constexpr int64_t kFirstWindow = 100, kLastWindow = 200;

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Rounds to a number of significant digits: the page becomes half as long, without a visible
// difference.
Json Rounded(double value, int digits) { return NumberOrNull(RoundToDigits(value, digits)); }

// Returns the version after `name` in "plumb 0.3.0, oneDNN 2.6.3, kernels AVX3".
std::string GetVersion(absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(VersionText(), ", ")) {
    if (absl::ConsumePrefix(&part, absl::StrCat(name, " "))) return std::string(part);
  }
  return "";
}

// Describes the norms that the runs were trained with. One that is not found, or was built again
// since, has no file and the 16 digits of its hash that the runs record.
Json Plugins(const StudyPlan& plan, HostRuntime* runtime) {
  constexpr absl::string_view kPrefix = "norm ";
  std::set<std::pair<std::string, std::string>> norms;  // ids and hashes
  for (const PlanRun& run : plan.runs) {
    for (const auto& [name, hash] : run.identity.parts()) {
      if (absl::StartsWith(name, kPrefix)) norms.emplace(name.substr(kPrefix.size()), hash);
    }
  }
  Json plugins = Json::array();
  for (const auto& [id, hash] : norms) {
    Json plugin = {{"id", id}, {"version", ""}, {"path", ""}, {"sha256", hash}};
    const absl::StatusOr<std::string> text = ToStatus(runtime->api().DescribePlugin(id));
    if (text.ok()) {
      const Json found = Json::parse(*text);
      const std::string now = found["sha256"];
      if (now.empty() || absl::StartsWith(now, hash)) {
        for (const char* key : {"version", "path", "sha256"}) plugin[key] = found[key];
      }
    }
    plugins.push_back(std::move(plugin));
  }
  return plugins;
}

// Replaces the path at the start of `description` by the file name, so that it does not depend on
// how the command line named the file.
std::string DataDescription(const std::string& path, absl::string_view description) {
  if (!absl::ConsumePrefix(&description, path)) return std::string(description);
  return absl::StrCat(std::filesystem::path(path).filename().string(), description);
}

// Returns everything that determines the numbers. ProvenanceData has where and when they were made.
Json OriginData(const StudyPlan& plan, const StudyResults& results, HostRuntime* runtime) {
  const TrainingPreview& training = plan.groups.front().training;
  return {{"plumb", GetVersion("plumb")},
          {"onednn", GetVersion("oneDNN")},
          {"kernels", GetVersion("kernels")},
          {"products", absl::StrJoin(results.Products(), " and ")},
          {"data",
           {{"path", AbsolutePath(plan.study.data())},
            {"description", DataDescription(plan.study.data(), training.data)},
            // of the file that the runs were trained on, if it is still there
            {"sha256", training.data.empty() ? "" : Sha256OfFile(plan.study.data())}}},
          {"plugins", Plugins(plan, runtime)}};
}

std::string Route(const Json& model) {
  const std::string route = model["identity_route"];
  if (route == "none") return "no identity route from embedding to head";
  const int64_t norms = model["norms_before_head"];
  return absl::StrCat("identity route from embedding to head: ", route, " to the last layer, then ",
                      norms == 0 ? "no norm" : Count(norms, "norm"));
}

Json ModelData(const PlanModel& model) {
  const Json& description = model.description;
  Json equations = description["begin"];
  const Json& layers = description["layers"];
  for (const Json& group : layers) {
    const std::string which = layers.size() == 1
                                  ? ""
                                  : absl::StrCat("layers ", group["first"].get<int64_t>(), "..",
                                                 group["last"].get<int64_t>(), ", ");
    for (const std::string line : group["equations"]) equations.push_back(which + line);
  }
  for (const Json& line : description["end"]) equations.push_back(line);
  Json jacobians = Json::array();
  for (const Json& group : layers) {
    for (const Json& jacobian : group["jacobians"]) jacobians.push_back(jacobian);
  }
  return {{"name", model.name},
          {"file", AbsolutePath(model.file)},
          {"parameters", description["totals"]["parameters"]},
          {"equations", equations},
          {"route", Route(description)},
          {"jacobians", std::move(jacobians)}};
}

Json DifferenceData(const StudyPlan& plan) {
  std::vector<std::string> texts;
  for (const PlanModel& model : plan.models) texts.push_back(model.text);
  Json differences = Json::array();
  for (const auto& [field, values] : Differences(texts)) {
    differences.push_back({{"field", field}, {"values", values}});
  }
  return differences;
}

// Returns the mean of a metric with its 95 % confidence interval.
Json IntervalJson(const Interval& interval) {
  return {{"mean", NumberOrNull(interval.mean)},
          {"low", NumberOrNull(interval.low)},
          {"high", NumberOrNull(interval.high)},
          {"runs", interval.n}};
}

// Returns the judged result of a model: its mean, how many runs diverged, and its places.
Json OutcomeJson(const StudyResults& results, size_t model, const ModelOutcome& outcome) {
  Json json = IntervalJson(ConfidenceInterval95(outcome.loss));
  json["diverged"] = outcome.diverged;
  const std::optional<Places> places =
      results.places.empty() ? std::nullopt : results.places[model];
  json["place"] = places ? Json::array({places->low, places->high}) : Json();
  return json;
}

// Returns the runs of a group that exist.
std::vector<const RunRecord*> GetRecords(const StudyPlan& plan, const StudyResults& results,
                                         size_t group) {
  std::vector<const RunRecord*> records;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.runs[i].group == group && results.records[i].is_present) {
      records.push_back(&results.records[i]);
    }
  }
  return records;
}

// Returns a total of runs divided by their steps, NaN without steps.
template <typename Number>
double PerStep(const std::vector<const RunRecord*>& records, Number RunRecord::*total) {
  double sum = 0, steps = 0;
  for (const RunRecord* record : records) {
    sum += static_cast<double>(record->*total);
    steps += static_cast<double>(record->losses.size());
  }
  return steps > 0 ? sum / steps : kNaN;
}

Json ProbeData(const std::vector<const RunProbes*>& runs) {
  if (runs.empty()) return Json();
  const RunProbes mean = MeanProbes(runs);
  Json series = Json::array();
  for (const ProbeSeries& one : mean.series) {
    Json values = Json::array();
    for (const std::vector<double>& row : one.values) {
      Json figures = Json::array();
      for (const double value : row) figures.push_back(Rounded(value, 4));
      values.push_back(std::move(figures));
    }
    series.push_back({{"name", one.name},
                      {"log", one.is_log},
                      {"largest", one.is_largest},
                      {"values", std::move(values)}});
  }
  return {{"runs", runs.size()},
          {"steps", mean.steps},
          {"layers", mean.layers},
          {"series", std::move(series)}};
}

// Data of the groups and of their runs, which share the blocks of their curves.
struct CurveData {
  Json groups = Json::array(), runs = Json::array();
};

Json RunData(const PlanRun& run, const RunRecord& record, const RunFigures& figures) {
  Json validation = Json::array();
  for (const auto& [step, loss] : record.validation) {
    validation.push_back(Json::array({step, NumberOrNull(loss)}));
  }
  Json samples = Json::array();
  for (const RunSample& sample : record.result.samples) {
    samples.push_back({{"text", sample.text}, {"degenerate", sample.degenerate}});
  }
  const std::optional<double> end = figures.metric[kLast100];
  return {{"group", run.group},
          {"seed", run.seed},
          {"status", StatusName(record.result.status)},
          {"step", record.result.step},
          {"message", record.result.message},
          {"spikes", record.result.spikes},
          {"skips", record.result.skips},
          {"loss", Json::array()},
          {"last", record.losses.empty() ? Json() : NumberOrNull(record.losses.back())},
          {"end", end ? NumberOrNull(*end) : Json()},
          {"validation", std::move(validation)},
          {"collapsed", figures.collapsed},
          {"samples", std::move(samples)}};
}

// Returns the curves of which the page draws the mean: those of runs that did not diverge, or all
// if all diverged. Requires: is parallel to `records`.
std::vector<const std::vector<double>*> CurvesInMean(
    const std::vector<const RunRecord*>& records,
    const std::vector<const std::vector<double>*>& curves) {
  std::vector<const std::vector<double>*> kept;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i]->result.status == RunStatus::kFinished) kept.push_back(curves[i]);
  }
  return kept.empty() ? curves : kept;
}

CurveData GroupsAndRuns(const StudyPlan& plan, const StudyResults& results) {
  CurveData data;
  const auto present = std::count_if(results.records.begin(), results.records.end(),
                                     [](const RunRecord& record) { return record.is_present; });
  const int64_t points = CurvePoints(static_cast<size_t>(present));
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& group = plan.groups[i];
    Json result = OutcomeJson(results, group.model, results.outcomes[i]);
    if (results.best) result["place"] = nullptr;  // places are those of the best settings
    const std::vector<const RunRecord*> records = GetRecords(plan, results, i);
    Json settings = Json::object();
    for (const auto& [field, value] : group.settings) settings[field] = value;
    Json json = {{"name", group.name},
                 {"model", group.model},
                 {"cell", group.cell},
                 {"settings", settings},
                 {"result", std::move(result)},
                 {"max_steps", group.training.max_steps},
                 {"tokens_per_step", Rounded(PerStep(records, &RunRecord::tokens), 9)},
                 {"flops_per_token", group.flops_per_token},
                 {"probes", ProbeData(ProbesOfGroup(plan, results, i))},
                 {"steps", Json()},
                 {"runs", Json::array()}};
    std::vector<std::vector<double>> losses;
    std::vector<const std::vector<double>*> curves;
    for (const RunRecord* record : records) {
      losses.push_back(record->losses);
      if (record->result.status == RunStatus::kDiverged)
        losses.back().push_back(kNaN);  // the step that diverged
    }
    for (const std::vector<double>& curve : losses) curves.push_back(&curve);
    const std::vector<int64_t> ends = BlockEnds(curves, points);
    if (!ends.empty() && ends.back() > static_cast<int64_t>(ends.size())) {
      json["steps"] = ends;
      json["extremes"] = Json::array();
      for (const double loss : BlockExtremes(CurvesInMean(records, curves), ends)) {
        json["extremes"].push_back(Rounded(loss, 5));
      }
    }
    size_t curve = 0;
    for (size_t run = 0; run < plan.runs.size(); ++run) {
      if (plan.runs[run].group != i || !results.records[run].is_present) continue;
      Json own = RunData(plan.runs[run], results.records[run], results.runs[run]);
      for (const double loss : BlockMeans(losses[curve++], ends)) {
        own["loss"].push_back(Rounded(loss, 5));
      }
      json["runs"].push_back(data.runs.size());
      data.runs.push_back(std::move(own));
    }
    data.groups.push_back(std::move(json));
  }
  return data;
}

Json CellData(const StudyPlan& plan) {
  Json cells = Json::array();
  for (const Overrides& cell : plan.cells) cells.push_back(CellName(cell));
  return cells;
}

Json TableData(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) {
      Json json = {{"text", cell.text}};
      if (std::isfinite(cell.value)) json["value"] = cell.value;
      if (std::isfinite(cell.sd)) json["sd"] = cell.sd;
      cells.push_back(std::move(json));
    }
    rows.push_back(std::move(cells));
  }
  return {{"columns", table.columns}, {"rows", std::move(rows)}};
}

Json DifferenceJson(const PairedDifference& difference) {
  Json json = IntervalJson(difference.interval);
  json["lower"] = difference.lower;
  json["higher"] = difference.higher;
  json["test"] = PairTestName(difference.test);
  json["p_student"] = NumberOrNull(difference.p_student);
  json["p_sign_flip"] = NumberOrNull(difference.p_sign_flip);
  json["p_holm"] = NumberOrNull(difference.p_holm);
  json["p_equal"] = NumberOrNull(difference.p_equal);
  return json;
}

Json PairedData(const StudyPlan& plan, const StudyResults& results) {
  Json paired = Json::array();
  for (const GroupPair& pair : ReportedPairs(plan, results)) {
    Json json = {{"metric", kMetricNames[pair.metric]},
                 {"cell", pair.cell},
                 {"group", pair.group},
                 {"against", pair.against}};
    json.update(DifferenceJson(*pair.difference));
    paired.push_back(std::move(json));
  }
  return paired;
}

Json BestData(const StudyPlan& plan, const StudyResults& results) {
  if (!results.best) return Json();
  const BestSettings& best = *results.best;
  Json models = Json::array(), paired = Json::array();
  for (size_t model = 0; model < plan.models.size(); ++model) {
    const ModelOutcome& outcome = best.comparison.models[model];
    Json json = {{"cell", best.cells[model]}};
    json.update(OutcomeJson(results, model, outcome));
    json["sd"] = NumberOrNull(outcome.loss.sd);
    json["mean_rank"] = NumberOrNull(results.mean_ranks[model]);
    if (!best.neighbours.empty()) json["neighbours"] = NeighboursText(best.neighbours[model]);
    models.push_back(std::move(json));
  }
  for (const PairedDifference& pair : best.comparison.pairs) {
    Json json = {{"model", pair.b}, {"against", pair.a}};
    json.update(DifferenceJson(pair));
    paired.push_back(std::move(json));
  }
  return {{"chosen_with", best.chosen_with},
          {"judged_alone", plan.chooses()},  // by seeds that only the best cells have
          {"models", std::move(models)},
          {"paired", std::move(paired)}};
}

// Replaces a path by the name of its file.
void CutToFileName(Json* path) {
  *path = std::filesystem::path(path->get<std::string>()).filename().string();
}

constexpr size_t kDigits = 40;  // of a SHA-1; SHA-256 repositories have 64

// Returns the first line of a file; "" if it cannot be read.
std::string FirstLine(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

bool IsHash(absl::string_view text) {
  return text.size() >= kDigits &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// Returns the commit of a reference such as "refs/heads/main".
std::string CommitOfReference(const std::string& repository, const std::string& reference) {
  const std::string own = FirstLine(JoinPath(repository, reference));
  if (IsHash(own)) return own;
  const absl::StatusOr<std::string> packed =
      ReadFile(JoinPath(repository, "packed-refs"), kMaxTextBytes);
  if (!packed.ok()) return "";
  for (absl::string_view line : absl::StrSplit(*packed, '\n')) {
    const absl::string_view name = reference;
    if (absl::ConsumeSuffix(&line, name) && absl::ConsumeSuffix(&line, " ") && IsHash(line)) {
      return std::string(line);
    }
  }
  return "";
}

}  // namespace

std::string JsonForScript(const nlohmann::ordered_json& json) {
  // Outside strings, JSON has none of these characters; inside, escapes replace them.
  return absl::StrReplaceAll(
      PrintableJson(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)),
      {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string RenderReport(const nlohmann::ordered_json& report) {
  return absl::StrCat(PageBeforeData(), JsonForScript(PackReport(report)), PageAfterData());
}

Json ProvenanceData(const StudyPlan& plan, const StudyResults& results,
                    const StudyProvenance& provenance) {
  Json runs = Json::array();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const RunRecord& record = results.records[i];
    if (!record.is_present) continue;
    runs.push_back({{"group", plan.groups[plan.runs[i].group].name},
                    {"seed", plan.runs[i].seed},
                    {"seconds", record.seconds},
                    {"tokens_per_second", record.TokensPerSecond()}});
  }
  return {{"command", provenance.command},
          // Commit of the repository that has the first model.
          {"commit", plan.models.empty() ? "" : FindGitCommit(plan.models.front().file)},
          {"hosts", provenance.hosts},
          {"cpu", ProcessorName()},
          {"threads", provenance.threads},
          {"started", provenance.started},
          {"seconds", provenance.seconds},
          {"runs", std::move(runs)}};
}

Json PageData(Json report, const StudyPlan& plan, const StudyResults& results) {
  for (size_t i = 0; i < plan.models.size(); ++i) {
    const std::string& picture = plan.models[i].picture;
    if (!picture.empty()) report["models"][i]["picture"] = picture;
  }
  Json seconds = Json::array();
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    seconds.push_back(Rounded(PerStep(GetRecords(plan, results, i), &RunRecord::seconds), 4));
  }
  report["seconds_per_step"] = std::move(seconds);
  // Readers of a page that was sent to them have no use for the folders of this machine.
  for (Json& model : report["models"]) CutToFileName(&model["file"]);
  CutToFileName(&report["provenance"]["data"]["path"]);
  for (Json& plugin : report["provenance"]["plugins"]) CutToFileName(&plugin["path"]);
  return report;
}

Json ReportData(const StudyPlan& plan, const StudyResults& results, HostRuntime* runtime) {
  int64_t steps = 0;
  for (const PlanGroup& group : plan.groups) steps = std::max(steps, group.training.max_steps);
  Json models = Json::array();
  for (const PlanModel& model : plan.models) models.push_back(ModelData(model));
  CurveData curves = GroupsAndRuns(plan, results);
  return {{"title", StudyTitle(plan, results)},
          // study.pbtxt is next to the page of a study.
          {"command", plan.study.model().empty() ? "plumb report RUN... --out DIR"
                                                 : "plumb compare study.pbtxt --out DIR"},
          {"provenance", OriginData(plan, results, runtime)},
          {"steps", steps},
          {"windows",
           {{"first", std::clamp<int64_t>(steps / 4, 1, kFirstWindow)},
            {"last", std::clamp<int64_t>(steps / 4, 1, kLastWindow)}}},
          {"models", std::move(models)},
          {"differences", DifferenceData(plan)},
          {"groups", std::move(curves.groups)},
          {"runs", std::move(curves.runs)},
          {"table", TableData(SummaryTable(plan, results, /*with_times=*/false))},
          {"judged", kMetricNames[results.judged]},
          {"conclusion", ConclusionWithMarks(plan, results)},
          {"cells", CellData(plan)},
          {"best", BestData(plan, results)},
          {"paired", PairedData(plan, results)}};
}

std::string FindGitCommit(const std::string& file) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::absolute(file, error).parent_path();
  while (!error && !FileExists((directory / ".git").string())) {
    if (directory == directory.parent_path()) return "";
    directory = directory.parent_path();
  }
  std::string repository = (directory / ".git").string();
  std::string common = repository;
  // A worktree has a file that names its part of the repository, which names the rest.
  absl::string_view line;
  const std::string link = IsDirectory(repository) ? "" : FirstLine(repository);
  line = link;
  if (absl::ConsumePrefix(&line, "gitdir: ")) {
    repository = (directory / std::string(line)).string();
    common = JoinPath(repository, FirstLine(JoinPath(repository, "commondir")));
  }
  const std::string head = FirstLine(JoinPath(repository, "HEAD"));
  line = head;
  if (!absl::ConsumePrefix(&line, "ref: ")) return IsHash(head) ? head : "";
  return CommitOfReference(common, std::string(absl::StripAsciiWhitespace(line)));
}

}  // namespace plumb
