// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/report_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/app/study/results.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text_format.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

// Max number of steps in the panes that show both ends of a run; each shows at most a quarter of
// it.
constexpr int64_t kFirstWindow = 100, kLastWindow = 200;

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Rounds to six decimals: a page with a million losses becomes half as long, without a visible
// difference.
Json Rounded(double value) { return NumberOrNull(std::round(value * 1e6) / 1e6); }

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

// Returns the version after `name` in "plumb 0.2.0, oneDNN 2.6.3, kernels AVX3".
std::string VersionOf(absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(VersionText(), ", ")) {
    if (absl::ConsumePrefix(&part, absl::StrCat(name, " "))) return std::string(part);
  }
  return "";
}

// Returns the ids of the runs' norms, from run.json.
std::set<std::string> PluginIds(const StudyPlan& plan) {
  std::set<std::string> ids;
  size_t seen = plan.groups.size();  // the runs of a group use the same norms
  for (const PlanRun& run : plan.runs) {
    if (run.group == seen) continue;
    seen = run.group;
    std::ifstream file(run.directory + "/run.json");
    const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("plugins") || !json["plugins"].is_object()) continue;
    for (const auto& plugin : json["plugins"].items()) ids.insert(plugin.key());
  }
  return ids;
}

Json Plugins(const StudyPlan& plan, HostRuntime* runtime) {
  Json plugins = Json::array();
  for (const std::string& id : PluginIds(plan)) {
    const absl::StatusOr<std::string> text = ToStatus(runtime->api().DescribePlugin(id));
    if (!text.ok()) continue;
    const Json info = Json::parse(*text);
    plugins.push_back({{"id", id},
                       {"version", info["version"]},
                       {"path", info["path"]},
                       {"sha256", Sha256OfFile(info["path"])}});
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
Json OriginData(const StudyPlan& plan, HostRuntime* runtime) {
  const TrainingPreview& training = plan.groups.front().training;
  return {{"plumb", VersionOf("plumb")},
          {"onednn", VersionOf("oneDNN")},
          {"kernels", VersionOf("kernels")},
          {"products", runtime->matmul()},
          {"data",
           {{"path", AbsolutePath(plan.study.data)},
            {"description", DataDescription(plan.study.data, training.data)},
            {"sha256", Sha256OfFile(plan.study.data)}}},
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
  Json data = {{"name", model.name},
               {"file", AbsolutePath(model.file)},
               {"parameters", description["totals"]["parameters"]},
               {"equations", equations},
               {"route", Route(description)},
               {"jacobians", std::move(jacobians)}};
  if (!model.picture.empty()) data["picture"] = model.picture;
  return data;
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

Json GroupData(const StudyPlan& plan, const StudyResults& results) {
  Json groups = Json::array();
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& group = plan.groups[i];
    const MeanAndSd& result = results.groups[i].metric[results.judged];
    Json settings = Json::object();
    for (const auto& [field, value] : group.settings) settings[field] = value;
    groups.push_back({{"name", group.name},
                      {"model", group.model},
                      {"cell", group.cell},
                      {"settings", settings},
                      {"result", IntervalJson(ConfidenceInterval95(result))},
                      {"runs", Json::array()}});
  }
  for (size_t i = 0; i < plan.runs.size(); ++i) groups[plan.runs[i].group]["runs"].push_back(i);
  return groups;
}

Json CellData(const StudyPlan& plan) {
  Json cells = Json::array();
  for (const Overrides& cell : plan.cells) cells.push_back(CellName(cell));
  return cells;
}

Json ProbeData(const std::optional<RunProbes>& probes) {
  if (!probes) return Json();
  const auto rows = [](const std::vector<std::vector<double>>& figures) {
    Json json = Json::array();
    for (const std::vector<double>& row : figures) {
      Json values = Json::array();
      for (double value : row) values.push_back(NumberOrNull(value));
      json.push_back(std::move(values));
    }
    return json;
  };
  return {{"steps", probes->steps},
          {"layers", probes->layers},
          {"gradient_norm", rows(probes->gradient_norm)},
          {"residual_rms", rows(probes->residual_rms)}};
}

Json RunData(const PlanRun& run, const RunRecord& record, const RunFigures& figures) {
  Json losses = Json::array();
  for (double loss : record.losses) losses.push_back(Rounded(loss));
  if (record.result.diverged) losses.push_back(Json());  // the step whose loss was not finite
  Json validation = Json::array();
  for (const auto& [step, loss] : record.validation) {
    validation.push_back(Json::array({step, NumberOrNull(loss)}));
  }
  Json samples = Json::array();
  for (const RunSample& sample : record.result.samples) {
    samples.push_back({{"text", sample.text}, {"degenerate", sample.degenerate}});
  }
  return {{"group", run.group},
          {"seed", run.seed},
          {"status", record.result.diverged ? "diverged" : "finished"},
          {"step", record.result.step},
          {"message", record.result.message},
          {"spikes", record.result.spikes},
          {"skips", record.result.skips},
          {"step_backs", record.result.step_backs},
          {"loss", std::move(losses)},
          {"validation", std::move(validation)},
          {"collapsed", figures.collapsed},
          {"samples", std::move(samples)},
          {"probes", ProbeData(record.probes)}};
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

// Pair of groups in one cell, with its difference.
struct GroupPair {
  Metric metric = kLast100;
  size_t cell = 0, group = 0, against = 0;
  const PairedDifference* difference = nullptr;
};

// Metrics whose differences are reported, without the judged one.
constexpr Metric kOtherMetrics[] = {kLast100, kFirst50, kMaxOfFirst20, kValidation};

// Returns the pairs to report: all of the judged metric, and those with the first model of the
// others.
std::vector<GroupPair> ReportedPairs(const StudyPlan& plan, const StudyResults& results) {
  std::vector<GroupPair> pairs;
  const auto add = [&](Metric metric, bool all) {
    const std::vector<Comparison>& cells = results.comparisons[metric];
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      for (const PairedDifference& pair : cells[cell].pairs) {
        if (!all && pair.a != 0) continue;
        pairs.push_back({metric, cell, pair.b * plan.cells.size() + cell,
                         pair.a * plan.cells.size() + cell, &pair});
      }
    }
  };
  add(results.judged, /*all=*/true);
  for (Metric metric : kOtherMetrics) {
    if (metric != results.judged) add(metric, /*all=*/false);
  }
  return pairs;
}

Json DifferenceJson(const PairedDifference& difference) {
  Json json = IntervalJson(difference.interval);
  json["p_student"] = NumberOrNull(difference.p_student);
  json["p_sign_flip"] = NumberOrNull(difference.p_sign_flip);
  json["p_holm"] = NumberOrNull(difference.p_holm);
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

std::vector<std::string> ModelNames(const StudyPlan& plan) {
  std::vector<std::string> names;
  for (const PlanModel& model : plan.models) names.push_back(model.name);
  return names;
}

std::string LossText(const MeanAndSd& loss) {
  std::string text = absl::StrFormat("%.3f", loss.mean);
  if (loss.n > 1) absl::StrAppendFormat(&text, " ± %.3f", loss.sd);
  return text;
}

// Returns the conclusion about the only model of a study.
std::string ConclusionOfOne(const StudyPlan& plan, const StudyResults& results) {
  const Comparison* const decisive = results.Decisive();
  const std::string loss =
      absl::StrCat(" is ", LossText(decisive->models[0]), " (", kMetricNames[results.judged], ")");
  if (!results.best) return absl::StrCat("The loss at the end", loss, ".");
  return absl::StrCat("The best setting is ", CellName(plan.cells[results.best->cells[0]]),
                      ", whose loss over the other seeds", loss, ".");
}

// Returns the conclusion of a study in sentences, with kNameMark around names.
std::string ConclusionText(const StudyPlan& plan, const StudyResults& results) {
  if (plan.runs.empty()) return "There are no runs in this comparison.";
  if (results.comparisons[results.judged].empty()) {
    return "Every run diverged: there is no end to compare.";
  }
  const Comparison* const decisive = results.Decisive();
  if (decisive != nullptr && plan.models.size() == 1 && decisive->models[0].n > 0) {
    return ConclusionOfOne(plan, results);
  }
  if (decisive == nullptr) {
    return "With one seed, nobody can choose the best setting of a model by one run and judge it "
           "by "
           "another; the table has every cell.";
  }
  std::string text;
  if (results.best) absl::StrAppend(&text, "Each at its best setting: ");
  absl::StrAppend(&text, VerdictText(*decisive, ModelNames(plan)));
  if (const std::string power = PowerText(*decisive, ModelNames(plan)); !power.empty()) {
    absl::StrAppend(&text, " ", power);
  }
  const bool has_two_seeds =
      std::any_of(decisive->pairs.begin(), decisive->pairs.end(),
                  [](const PairedDifference& pair) { return pair.interval.n == 2; });
  if (has_two_seeds) {
    absl::StrAppend(&text,
                    " Intervals from two seeds are 12.7 standard errors wide on each side, "
                    "and depend on the two runs not being unusually close to each other.");
  }
  return text;
}

Json BestData(const StudyPlan& plan, const StudyResults& results) {
  if (!results.best) return Json();
  const BestSettings& best = *results.best;
  Json models = Json::array(), paired = Json::array();
  for (size_t model = 0; model < plan.models.size(); ++model) {
    const MeanAndSd& loss = best.comparison.models[model];
    Json json = {{"cell", best.cells[model]}};
    json.update(IntervalJson(ConfidenceInterval95(loss)));
    json["sd"] = NumberOrNull(loss.sd);
    json["mean_rank"] = NumberOrNull(results.mean_ranks[model]);
    models.push_back(std::move(json));
  }
  for (const PairedDifference& pair : best.comparison.pairs) {
    Json json = {{"model", pair.b}, {"against", pair.a}};
    json.update(DifferenceJson(pair));
    paired.push_back(std::move(json));
  }
  return {{"chosen_with", best.chosen_with},
          {"models", std::move(models)},
          {"paired", std::move(paired)}};
}

Cell TextCell(std::string text) { return {std::move(text), kNaN, kNaN}; }
Cell CountCell(int64_t n) { return {WithCommas(n), static_cast<double>(n), kNaN}; }

// Formats with three digits and a power of thousand: "24.1 k".
Cell FlopsCell(double flops) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  double value = flops;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return {absl::StrFormat("%.3g%s", value, kUnits[unit]), flops, kNaN};
}

Cell MeanCell(const MeanAndSd& summary, int digits) {
  if (summary.n == 0) return TextCell("–");
  std::string text = absl::StrFormat("%.*f", digits, summary.mean);
  if (summary.n > 1) absl::StrAppendFormat(&text, " ± %.*f", digits, summary.sd);
  return {text, summary.mean, summary.sd};
}

Cell DivergedCell(const StudyPlan& plan, const StudyResults& results, const GroupFigures& group) {
  Cell cell = CountCell(static_cast<int64_t>(group.diverged.size()));
  if (group.diverged.empty()) return cell;
  std::vector<std::string> runs;
  constexpr size_t kNamed = 3;
  for (size_t i = 0; i < std::min(kNamed, group.diverged.size()); ++i) {
    const size_t run = group.diverged[i];
    runs.push_back(
        absl::StrCat("seed ", plan.runs[run].seed, " at step ", results.records[run].result.step));
  }
  if (group.diverged.size() > kNamed) runs.push_back("…");
  absl::StrAppend(&cell.text, " (", absl::StrJoin(runs, ", "), ")");
  return cell;
}

std::string MarkdownText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// Formats nine digits; "" if there is no value.
std::string CsvNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "";
}

std::string ColumnName(int metric) {
  return absl::StrReplaceAll(kMetricNames[metric], {{" ", "_"}});
}

// Formats a p-value with three digits.
std::string PText(double p) {
  if (std::isnan(p)) return "–";
  return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p);
}

std::vector<Cell> DifferenceCells(const PairedDifference& difference) {
  const Interval& interval = difference.interval;
  Cell mean = TextCell("–"), range = TextCell("–");
  if (interval.n > 0) mean.text = absl::StrFormat("%+.3f", interval.mean);
  if (interval.n > 1) range.text = absl::StrFormat("%+.3f to %+.3f", interval.low, interval.high);
  return {mean, range, CountCell(interval.n), TextCell(PText(difference.p_holm)),
          TextCell(PText(difference.p_sign_flip))};
}

// Max number of models of which tables for people list all pairs.
constexpr size_t kMaxModelsOfPairs = 8;

}  // namespace

std::string StudyTitle(const StudyPlan& plan) {
  constexpr size_t kNamed = 4;
  std::string title;
  for (size_t i = 0; i < std::min(kNamed, plan.models.size()); ++i) {
    absl::StrAppend(&title, i == 0 ? "" : ", ", plan.models[i].name);
  }
  return plan.models.size() > kNamed ? title + ", …" : title;
}

Json ProvenanceData(const StudyPlan& plan, const StudyResults& results,
                    const StudyProvenance& provenance) {
  Json runs = Json::array();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const RunRecord& record = results.records[i];
    runs.push_back({{"group", plan.groups[plan.runs[i].group].name},
                    {"seed", plan.runs[i].seed},
                    {"seconds", record.seconds},
                    {"tokens_per_second", record.TokensPerSecond()}});
  }
  return {{"command", provenance.command}, {"hosts", provenance.hosts},
          {"cpu", ProcessorName()},        {"threads", provenance.threads},
          {"started", provenance.started}, {"seconds", provenance.seconds},
          {"runs", std::move(runs)}};
}

Json ReportData(const StudyPlan& plan, const StudyResults& results, HostRuntime* runtime) {
  int64_t steps = 0;
  for (const PlanGroup& group : plan.groups) steps = std::max(steps, group.training.max_steps);
  Json models = Json::array(), runs = Json::array();
  for (const PlanModel& model : plan.models) models.push_back(ModelData(model));
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    runs.push_back(RunData(plan.runs[i], results.records[i], results.runs[i]));
  }
  return {{"title", StudyTitle(plan)},
          {"command", "plumb compare study.pbtxt --out DIR"},  // study.pbtxt is next to the page
          {"provenance", OriginData(plan, runtime)},
          {"steps", steps},
          {"windows",
           {{"first", std::clamp<int64_t>(steps / 4, 1, kFirstWindow)},
            {"last", std::clamp<int64_t>(steps / 4, 1, kLastWindow)}}},
          {"models", std::move(models)},
          {"differences", DifferenceData(plan)},
          {"groups", GroupData(plan, results)},
          {"runs", std::move(runs)},
          {"table", TableData(SummaryTable(plan, results, /*with_times=*/false))},
          {"judged", kMetricNames[results.judged]},
          {"conclusion", ConclusionText(plan, results)},
          {"cells", CellData(plan)},
          {"best", BestData(plan, results)},
          {"paired", PairedData(plan, results)}};
}

Table SummaryTable(const StudyPlan& plan, const StudyResults& results, bool with_times) {
  Table table;
  const bool is_matched = plan.study.match != StudyMatch::kSteps;
  table.columns = {"model", "parameters"};
  if (is_matched) table.columns.insert(table.columns.end(), {"FLOPs/token", "steps"});
  table.columns.push_back("runs");
  table.columns.insert(table.columns.end(), std::begin(kMetricNames), std::end(kMetricNames));
  if (with_times) table.columns.push_back("tokens/s");
  const auto any = [&results](int64_t GroupFigures::*count) {
    return std::any_of(results.groups.begin(), results.groups.end(),
                       [count](const GroupFigures& group) { return group.*count > 0; });
  };
  const bool has_spikes = any(&GroupFigures::spikes), has_survived = any(&GroupFigures::survived);
  if (has_spikes) table.columns.push_back("spikes");
  if (has_survived) table.columns.push_back("survived");
  table.columns.insert(table.columns.end(), {"diverged", "collapsed"});
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const GroupFigures& group = results.groups[i];
    const PlanGroup& planned = plan.groups[i];
    std::vector<Cell> row = {TextCell(planned.name), CountCell(planned.parameters)};
    if (is_matched) {
      row.push_back(FlopsCell(planned.flops_per_token));
      row.push_back(CountCell(planned.training.max_steps));
    }
    row.push_back(CountCell(group.runs));
    for (const MeanAndSd& metric : group.metric) row.push_back(MeanCell(metric, 3));
    if (with_times) row.push_back(MeanCell(group.tokens_per_second, 0));
    if (has_spikes) row.push_back(CountCell(group.spikes));
    if (has_survived) row.push_back(CountCell(group.survived));
    row.push_back(DivergedCell(plan, results, group));
    row.push_back(CountCell(group.collapsed));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table PairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {"difference", "metric",   "mean",     "95 % interval",
                   "seeds",      "p (Holm)", "p (signs)"};
  for (const GroupPair& pair : ReportedPairs(plan, results)) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.difference->a != 0) continue;
    std::string name = absl::StrCat(plan.models[pair.difference->b].name, " − ",
                                    plan.models[pair.difference->a].name);
    if (!plan.cells[pair.cell].empty()) {
      absl::StrAppend(&name, ", ", CellName(plan.cells[pair.cell]));
    }
    std::vector<Cell> row = {TextCell(std::move(name)), TextCell(kMetricNames[pair.metric])};
    for (Cell& cell : DifferenceCells(*pair.difference)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table BestTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {"model", "best setting", kMetricNames[results.judged], "seeds", "mean rank"};
  const BestSettings& best = *results.best;
  for (size_t model : Judge(best.comparison).ranked) {
    const MeanAndSd& loss = best.comparison.models[model];
    table.rows.push_back({TextCell(plan.models[model].name),
                          TextCell(CellName(plan.cells[best.cells[model]])), MeanCell(loss, 3),
                          CountCell(loss.n),
                          TextCell(absl::StrFormat("%.1f", results.mean_ranks[model]))});
  }
  return table;
}

Table BestPairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = {
      "difference at best settings", "mean", "95 % interval", "seeds", "p (Holm)", "p (signs)"};
  for (const PairedDifference& pair : results.best->comparison.pairs) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.a != 0) continue;
    std::vector<Cell> row = {
        TextCell(absl::StrCat(plan.models[pair.b].name, " − ", plan.models[pair.a].name))};
    for (Cell& cell : DifferenceCells(pair)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string Conclusion(const StudyPlan& plan, const StudyResults& results) {
  return absl::StrReplaceAll(ConclusionText(plan, results), {{kNameMark, ""}});
}

std::string ToMarkdown(const Table& table) {
  std::string text = absl::StrCat("| ", absl::StrJoin(table.columns, " | "), " |\n|");
  for (size_t i = 0; i < table.columns.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "---|" : "---:|");
  for (const auto& row : table.rows) {
    absl::StrAppend(&text, "\n|");
    for (const Cell& cell : row) absl::StrAppend(&text, " ", MarkdownText(cell.text), " |");
  }
  return text + "\n";
}

std::string ToText(const Table& table) {
  std::vector<std::vector<std::string>> rows = {table.columns};
  for (const auto& row : table.rows) {
    rows.emplace_back();
    for (const Cell& cell : row) rows.back().push_back(cell.text);
  }
  // The first column is text, all others are numbers.
  return AlignColumns(rows, "l" + std::string(table.columns.size() - 1, 'r'), "");
}

std::string TableMarkdown(const StudyPlan& plan, const StudyResults& results) {
  const Table summary = SummaryTable(plan, results, /*with_times=*/false);
  std::string text = ToMarkdown(summary);
  absl::StrAppend(
      &text,
      "\nLosses in nats a token, mean ± standard deviation over the runs that finished. first 50 "
      "and "
      "last 100:\nmean training loss of those steps; max of first 20 and min: of single steps; "
      "validation: over the\nwhole held-out split, after the last step. Collapsed: last 100 is "
      "within 1 % of the unigram entropy\nof the tokens of those steps, or above it.\n");
  const auto has = [&summary](const char* column) {
    return std::count(summary.columns.begin(), summary.columns.end(), column) > 0;
  };
  if (has("spikes")) {
    absl::StrAppend(&text,
                    "Spikes: of the loss, above the median of the 50 steps before by 1 nat and ten "
                    "times their median\nabsolute deviation; counted in all runs.\n");
  }
  if (has("survived")) {
    absl::StrAppend(&text,
                    "Survived: steps that were not finite and did not end the run "
                    "(train.on_divergence).\n");
  }
  absl::StrAppend(&text, "\n", Conclusion(plan, results), "\n");
  if (results.best) {
    const size_t chosen_with = results.best->chosen_with;
    absl::StrAppend(&text, "\n", ToMarkdown(BestTable(plan, results)), "\n",
                    ToMarkdown(BestPairedTable(plan, results)),
                    "\nSettings were chosen by the first ",
                    Count(static_cast<int64_t>(chosen_with), "seed"),
                    ", and these losses are of the other seeds. Mean rank: over all settings.\n");
  }
  if (const Table paired = PairedTable(plan, results); !paired.rows.empty()) {
    absl::StrAppend(&text, "\n", ToMarkdown(paired),
                    "\nDifferences are paired by seed, over the seeds with which neither diverged; "
                    "intervals are Student's t.\np (Holm): of Student's paired t-test, adjusted "
                    "for all pairs in "
                    "all cells. p (signs): of the sign-flip\npermutation test, not adjusted; it "
                    "does not assume "
                    "normal losses, and needs six seeds to reach 0.05.\n");
  }
  return text;
}

std::string TableCsv(const StudyPlan& plan, const StudyResults& results) {
  std::string text = "group,model";
  for (const StudyAxis& axis : plan.study.grid) absl::StrAppend(&text, ",", CsvText(axis.field));
  absl::StrAppend(
      &text,
      ",parameters,flops_per_token,steps,memory,runs,finished,diverged,collapsed,spikes,"
      "survived,unigram_entropy");
  for (int m = 0; m < kMetrics; ++m) {
    const std::string name = ColumnName(m);
    absl::StrAppend(&text, ",", name, "_mean,", name, "_sd");
  }
  absl::StrAppend(&text, ",last_100_difference,last_100_low,last_100_high,last_100_pairs\n");
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& planned = plan.groups[i];
    const GroupFigures& group = results.groups[i];
    absl::StrAppend(&text, CsvText(planned.name), ",", CsvText(plan.models[planned.model].name));
    for (const auto& setting : planned.settings) {
      absl::StrAppend(&text, ",", CsvText(setting.second));
    }
    absl::StrAppend(&text, ",", planned.parameters, ",", CsvNumber(planned.flops_per_token), ",",
                    planned.training.max_steps, ",", planned.memory.total);
    absl::StrAppend(&text, ",", group.runs, ",", group.finished, ",", group.diverged.size(), ",",
                    group.collapsed, ",", group.spikes, ",", group.survived, ",",
                    CsvNumber(group.unigram_entropy));
    for (const MeanAndSd& metric : group.metric) {
      absl::StrAppend(&text, ",", CsvNumber(metric.mean), ",", CsvNumber(metric.sd));
    }
    if (planned.model != 0 && !results.comparisons[kLast100].empty()) {
      const Interval& interval =
          results.comparisons[kLast100][planned.cell].Pair(0, planned.model).interval;
      absl::StrAppend(&text, ",", CsvNumber(interval.mean), ",", CsvNumber(interval.low), ",",
                      CsvNumber(interval.high), ",", interval.n, "\n");
    } else {
      absl::StrAppend(&text, ",,,,\n");
    }
  }
  return text;
}

std::string RunsCsv(const StudyPlan& plan, const StudyResults& results) {
  std::string text = "group,model";
  for (const StudyAxis& axis : plan.study.grid) absl::StrAppend(&text, ",", CsvText(axis.field));
  absl::StrAppend(&text, ",seed,status,steps,collapsed,spikes,skips,step_backs");
  for (int m = 0; m < kMetrics; ++m) absl::StrAppend(&text, ",", ColumnName(m));
  absl::StrAppend(&text,
                  ",unigram_entropy,parameters,flops_per_token,tokens,model_hash,recipe_hash,"
                  "data_hash\n");
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const PlanGroup& group = plan.groups[plan.runs[i].group];
    const RunRecord& record = results.records[i];
    absl::StrAppend(&text, CsvText(group.name), ",", CsvText(plan.models[group.model].name));
    for (const auto& setting : group.settings) absl::StrAppend(&text, ",", CsvText(setting.second));
    absl::StrAppend(&text, ",", plan.runs[i].seed, ",",
                    record.result.diverged ? "diverged" : "finished", ",", record.result.step, ",",
                    results.runs[i].collapsed ? 1 : 0, ",", record.result.spikes, ",",
                    record.result.skips, ",", record.result.step_backs);
    for (const std::optional<double>& metric : results.runs[i].metric) {
      absl::StrAppend(&text, ",", metric ? absl::StrFormat("%.17g", *metric) : "");
    }
    absl::StrAppend(&text, ",",
                    CsvNumber(group.unigram_entropies[i % group.unigram_entropies.size()]), ",",
                    group.parameters, ",", CsvNumber(group.flops_per_token), ",", record.tokens,
                    ",", group.fingerprint, ",", Sha256(group.training.train_text).substr(0, 16),
                    ",", group.training.data_hash, "\n");
  }
  return text;
}

std::string TimingCsv(const StudyPlan& plan, const StudyResults& results) {
  std::string text = "group,seed,seconds,tokens,tokens_per_second\n";
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const RunRecord& record = results.records[i];
    absl::StrAppend(&text, CsvText(plan.groups[plan.runs[i].group].name), ",", plan.runs[i].seed,
                    ",", CsvNumber(record.seconds), ",", record.tokens, ",",
                    CsvNumber(record.TokensPerSecond()), "\n");
  }
  return text;
}

}  // namespace plumb
