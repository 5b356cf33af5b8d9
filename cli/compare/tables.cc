#include "cli/compare/tables.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/compare/statistics.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

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

// Characters, not bytes.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string MarkdownText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// Nine digits; "" for what is not there.
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
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(Width(column));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i].text));
  }
  std::string text;
  const auto add = [&](size_t i, const std::string& cell) {
    const std::string space(widths[i] - Width(cell), ' ');
    // Words to the left, figures to the right.
    absl::StrAppend(&text, i == 0 ? "" : "  ", i == 0 ? cell : space, i == 0 ? space : cell);
  };
  for (size_t i = 0; i < table.columns.size(); ++i) add(i, table.columns[i]);
  for (const auto& row : table.rows) {
    text.push_back('\n');
    for (size_t i = 0; i < row.size(); ++i) add(i, row[i].text);
  }
  return text + "\n";
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
