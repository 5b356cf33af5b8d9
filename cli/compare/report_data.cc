// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/report_data.h"

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
#include "cli/compare/results.h"
#include "cli/compare/sha256.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

constexpr double kSmoothing = 0.98;
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
std::set<std::string> PluginIds(const Plan& plan) {
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

Json Plugins(const Plan& plan, HostRuntime* runtime) {
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
Json OriginData(const Plan& plan, HostRuntime* runtime) {
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
  std::string route = Route(description);
  if (!layers.empty()) {
    absl::StrAppend(&route,
                    "; Jacobian of a layer: ", layers.front()["jacobian"].get<std::string>());
  }
  Json data = {{"name", model.name},
               {"file", AbsolutePath(model.file)},
               {"parameters", description["totals"]["parameters"]},
               {"equations", equations},
               {"route", route}};
  if (!model.picture.empty()) data["picture"] = model.picture;
  return data;
}

Json DifferenceData(const Plan& plan) {
  std::vector<std::string> texts;
  for (const PlanModel& model : plan.models) texts.push_back(model.text);
  Json differences = Json::array();
  for (const auto& [field, values] : Differences(texts)) {
    differences.push_back({{"field", field}, {"values", values}});
  }
  return differences;
}

Json GroupData(const Plan& plan) {
  Json groups = Json::array();
  for (const PlanGroup& group : plan.groups) {
    Json settings = Json::object();
    for (const auto& [field, value] : group.settings) settings[field] = value;
    groups.push_back({{"name", group.name},
                      {"model", group.model},
                      {"settings", settings},
                      {"runs", Json::array()}});
  }
  for (size_t i = 0; i < plan.runs.size(); ++i) groups[plan.runs[i].group]["runs"].push_back(i);
  return groups;
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

Json PairedData(const StudyResults& results) {
  Json paired = Json::array();
  for (const PairedDifference& difference : results.paired) {
    const Interval& interval = difference.interval;
    paired.push_back({{"group", difference.group},
                      {"against", difference.against},
                      {"metric", kMetricNames[difference.metric]},
                      {"mean", NumberOrNull(interval.mean)},
                      {"low", NumberOrNull(interval.low)},
                      {"high", NumberOrNull(interval.high)},
                      {"runs", interval.n}});
  }
  return paired;
}

Cell TextCell(std::string text) { return {std::move(text), kNaN, kNaN}; }
Cell CountCell(int64_t n) { return {WithCommas(n), static_cast<double>(n), kNaN}; }

Cell MeanCell(const MeanAndSd& summary, int digits) {
  if (summary.n == 0) return TextCell("–");
  std::string text = absl::StrFormat("%.*f", digits, summary.mean);
  if (summary.n > 1) absl::StrAppendFormat(&text, " ± %.*f", digits, summary.sd);
  return {text, summary.mean, summary.sd};
}

Cell DivergedCell(const Plan& plan, const StudyResults& results, const GroupFigures& group) {
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

const PairedDifference* FindPaired(const StudyResults& results, size_t group, Metric metric) {
  for (const PairedDifference& paired : results.paired) {
    if (paired.group == group && paired.metric == metric) return &paired;
  }
  return nullptr;
}

}  // namespace

std::string StudyTitle(const Plan& plan) {
  constexpr size_t kNamed = 4;
  std::string title;
  for (size_t i = 0; i < std::min(kNamed, plan.models.size()); ++i) {
    absl::StrAppend(&title, i == 0 ? "" : ", ", plan.models[i].name);
  }
  return plan.models.size() > kNamed ? title + ", …" : title;
}

Json ProvenanceData(const Plan& plan, const StudyResults& results, const Provenance& provenance) {
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

Json ReportData(const Plan& plan, const StudyResults& results, HostRuntime* runtime) {
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
          {"smoothing", kSmoothing},
          {"windows",
           {{"first", std::min(kFirstWindow, steps)}, {"last", std::min(kLastWindow, steps)}}},
          {"models", std::move(models)},
          {"differences", DifferenceData(plan)},
          {"groups", GroupData(plan)},
          {"runs", std::move(runs)},
          {"table", TableData(SummaryTable(plan, results, /*with_times=*/false))},
          {"paired", PairedData(results)}};
}

Table SummaryTable(const Plan& plan, const StudyResults& results, bool with_times) {
  Table table;
  table.columns = {"model", "parameters", "runs"};
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
    std::vector<Cell> row = {TextCell(plan.groups[i].name), CountCell(plan.groups[i].parameters),
                             CountCell(group.runs)};
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

Table PairedTable(const Plan& plan, const StudyResults& results) {
  Table table;
  table.columns = {"difference", "metric", "mean", "95 % interval", "seeds"};
  for (const PairedDifference& paired : results.paired) {
    const Interval& interval = paired.interval;
    Cell mean = TextCell("–"), range = TextCell("–");
    if (interval.n > 0) mean.text = absl::StrFormat("%+.3f", interval.mean);
    if (interval.n > 1) range.text = absl::StrFormat("%+.3f to %+.3f", interval.low, interval.high);
    table.rows.push_back({TextCell(absl::StrCat(plan.groups[paired.group].name, " − ",
                                                plan.groups[paired.against].name)),
                          TextCell(kMetricNames[paired.metric]), mean, range,
                          CountCell(interval.n)});
  }
  return table;
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

std::string TableMarkdown(const Plan& plan, const StudyResults& results) {
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
  if (!results.paired.empty()) {
    absl::StrAppend(&text, "\n", ToMarkdown(PairedTable(plan, results)),
                    "\nDifferences are paired by seed, over the seeds with which both finished; "
                    "intervals are Student's t.\n");
  }
  return text;
}

std::string TableCsv(const Plan& plan, const StudyResults& results) {
  std::string text = "group,model";
  for (const StudyAxis& axis : plan.study.grid) absl::StrAppend(&text, ",", CsvText(axis.field));
  absl::StrAppend(&text,
                  ",parameters,runs,finished,diverged,collapsed,spikes,survived,unigram_entropy");
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
    absl::StrAppend(&text, ",", planned.parameters, ",", group.runs, ",", group.finished, ",",
                    group.diverged.size(), ",", group.collapsed, ",", group.spikes, ",",
                    group.survived, ",", CsvNumber(group.unigram_entropy));
    for (const MeanAndSd& metric : group.metric) {
      absl::StrAppend(&text, ",", CsvNumber(metric.mean), ",", CsvNumber(metric.sd));
    }
    if (const PairedDifference* paired = FindPaired(results, i, kLast100)) {
      const Interval& interval = paired->interval;
      absl::StrAppend(&text, ",", CsvNumber(interval.mean), ",", CsvNumber(interval.low), ",",
                      CsvNumber(interval.high), ",", interval.n, "\n");
    } else {
      absl::StrAppend(&text, ",,,,\n");
    }
  }
  return text;
}

std::string TimingCsv(const Plan& plan, const StudyResults& results) {
  std::string text = "group,seed,seconds,tokens,tokens_per_second\n";
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const RunRecord& record = results.records[i];
    absl::StrAppend(&text, CsvText(plan.groups[plan.runs[i].group].name), ",", plan.runs[i].seed,
                    ",", CsvNumber(record.seconds), ",", record.tokens, ",",
                    CsvNumber(record.TokensPerSecond()), "\n");
  }
  return text;
}

}  // namespace plumb::cli
