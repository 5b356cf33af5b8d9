#include "cli/compare/report_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/compare/sha256.h"
#include "cli/compare/tables.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

constexpr double kSmoothing = 0.98;
constexpr int64_t kFirstWindow = 100, kLastWindow = 200;

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// To six decimals: a page of a million losses is half as long, and nobody sees more.
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

// The version behind `name` in "plumb 0.1.0, oneDNN 2.6.3, kernels AVX3".
std::string VersionOf(absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(VersionText(), ", ")) {
    if (absl::ConsumePrefix(&part, absl::StrCat(name, " "))) return std::string(part);
  }
  return "";
}

// The ids of the runs' norms, from run.json.
std::set<std::string> PluginIds(const Plan& plan) {
  std::set<std::string> ids;
  size_t seen = plan.groups.size();  // a group's runs use the same
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
    const absl::StatusOr<PluginInfo> info = runtime->DescribePlugin(id);
    if (!info.ok()) continue;
    plugins.push_back({{"id", id},
                       {"version", info->version},
                       {"path", info->path},
                       {"sha256", Sha256OfFile(info->path)}});
  }
  return plugins;
}

// With the file's name alone, however the command line named it.
std::string DataDescription(const std::string& path, absl::string_view description) {
  if (!absl::ConsumePrefix(&description, path)) return std::string(description);
  return absl::StrCat(std::filesystem::path(path).filename().string(), description);
}

// What decides the numbers. Where and when they were made: ProvenanceData.
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

std::string Route(const ModelDescription& model) {
  if (model.identity_route == "none") return "no identity route from embedding to head";
  return absl::StrCat(
      "identity route from embedding to head: ", model.identity_route, " to the last layer, then ",
      model.norms_before_head == 0 ? "no norm" : Count(model.norms_before_head, "norm"));
}

Json ModelData(const PlanModel& model) {
  Json equations = Json::array();
  const ModelDescription& description = model.description;
  for (const std::string& line : description.begin) equations.push_back(line);
  for (const LayerGroupInfo& group : description.layers) {
    const std::string layers = description.layers.size() == 1
                                   ? ""
                                   : absl::StrCat("layers ", group.first, "..", group.last, ", ");
    for (const std::string& line : group.equations) equations.push_back(layers + line);
  }
  for (const std::string& line : description.end) equations.push_back(line);
  std::string route = Route(description);
  if (!description.layers.empty()) {
    absl::StrAppend(&route, "; Jacobian of a layer: ", description.layers.front().jacobian);
  }
  Json data = {{"name", model.name},
               {"file", AbsolutePath(model.file)},
               {"parameters", description.parameters},
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
  if (record.result.diverged) losses.push_back(Json());  // of the step that had no number
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
          {"command", "plumb compare study.pbtxt --out DIR"},  // the file is beside the page
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

}  // namespace plumb::cli
