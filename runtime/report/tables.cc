// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text_format.h"
#include "runtime/base/utf8.h"
#include "runtime/report/conclusion.h"

namespace plumb {
namespace {

// Max number of models of which tables for people list all pairs.
constexpr size_t kMaxModelsOfPairs = 8;

Cell TextCell(std::string text) { return {std::move(text), kNaN, kNaN}; }
Cell CountCell(int64_t n) { return {WithCommas(n), static_cast<double>(n), kNaN}; }

Cell MemoryCell(int64_t bytes) {
  if (bytes == 0) return TextCell("–");  // a run of an earlier build
  return {Bytes(bytes), static_cast<double>(bytes), kNaN};
}

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
  absl::StrAppend(&cell.text, " of ", group.runs);
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

// Formats a p-value with three digits.
std::string PText(double p) {
  if (std::isnan(p)) return "–";
  return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p);
}

// Returns the name of a model, with how many of its runs failed.
std::string ResultName(const StudyPlan& plan, const Comparison& comparison, size_t model) {
  const std::string failures = FailureText(comparison.models[model]);
  return absl::StrCat(plan.models[model].name, failures.empty() ? "" : " (", failures,
                      failures.empty() ? "" : ")");
}

std::string PairName(const StudyPlan& plan, const Comparison& comparison,
                     const PairedDifference& pair) {
  return absl::StrCat(ResultName(plan, comparison, pair.b), " − ",
                      ResultName(plan, comparison, pair.a));
}

Cell PlaceCell(const std::optional<Places>& places) {
  if (!places) return TextCell("–");
  const std::string end = places->low < places->high ? absl::StrCat("–", places->high) : "";
  return TextCell(absl::StrCat(places->low, end));
}

// Returns the columns of a table of differences, after those of their names.
std::vector<std::string> DifferenceColumns(const StudyPlan& plan,
                                           std::vector<std::string> columns) {
  columns.insert(columns.end(), {"mean", "95 % interval", "seeds", "test", "p (Holm)"});
  if (plan.study.margin() > 0) {
    columns.push_back(absl::StrCat("p (equal within ", plan.study.margin(), ")"));
  }
  return columns;
}

std::vector<Cell> DifferenceCells(const StudyPlan& plan, const PairedDifference& difference) {
  const Interval& interval = difference.interval;
  Cell mean = TextCell("–"), range = TextCell("–");
  if (difference.test == PairTest::kSign) {
    mean.text = difference.is_lower() ? absl::StrCat("lower with ", difference.lower)
                                      : absl::StrCat("higher with ", difference.higher);
  } else if (interval.n > 0) {
    mean.text = absl::StrFormat("%+.3f", interval.mean);
  }
  if (!std::isnan(interval.low))
    range.text = absl::StrFormat("%+.3f to %+.3f", interval.low, interval.high);
  std::vector<Cell> cells = {mean, range, CountCell(interval.n),
                             TextCell(PairTestName(difference.test)),
                             TextCell(PText(difference.p_holm))};
  if (plan.study.margin() > 0) cells.push_back(TextCell(PText(difference.p_equal)));
  return cells;
}

// Letters of Latin-1 and Latin Extended-A that pdflatex lacks without the package fontenc.
constexpr absl::string_view kNotInOt1 = "ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ";

std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(PrintableText(text), {{"\n", " "}, {"\t", " "}});
}

std::string LatexText(absl::string_view text) {
  // A hyphen at the start of a word is a minus.
  const std::string words = absl::StrReplaceAll(absl::StrCat(" ", OneLine(text)), {{" -", " −"}});
  std::string latex;
  for (size_t at = 1; at < words.size();) {
    const size_t begin = at;
    const uint32_t code_point = *NextCodePoint(words, &at);
    const std::string letter = words.substr(begin, at - begin);
    const bool is_latin =
        code_point >= 0xC0 && code_point < 0x180 && !absl::StrContains(kNotInOt1, letter);
    if (letter == "\\") {
      latex += "\\textbackslash{}";
    } else if (absl::StrContains("&%$#_{}", letter)) {
      latex += "\\" + letter;
    } else if (absl::StrContains("~^", letter)) {
      latex += "\\" + letter + "{}";
    } else if (absl::StrContains("<>|", letter)) {
      latex += "$" + letter + "$";
    } else if (absl::StrContains("[*`", letter)) {
      latex += "{" + letter + "}";  // not an argument of \\ or \midrule
    } else if (code_point < 0x80 || is_latin || absl::StrContains("±−–…", letter)) {
      latex += letter;
    } else {
      absl::StrAppendFormat(&latex, "\\textbackslash{}u\\{%x\\}", code_point);
    }
  }
  return absl::StrReplaceAll(latex,
                             {{"±", "$\\pm$"}, {"−", "$-$"}, {"–", "--"}, {"…", "\\dots{}"}});
}

// Returns the names of the columns and then the rows, each text as `escape` writes it.
std::vector<std::vector<std::string>> EscapedRows(const Table& table,
                                                  std::string (*escape)(absl::string_view)) {
  std::vector<std::vector<std::string>> rows(1);
  for (const std::string& column : table.columns) rows[0].push_back(escape(column));
  for (const auto& row : table.rows) {
    rows.emplace_back();
    for (const Cell& cell : row) rows.back().push_back(escape(cell.text));
  }
  return rows;
}

std::string ColumnName(int metric) {
  return absl::StrReplaceAll(kMetricNames[metric], {{" ", "_"}});
}

}  // namespace

std::string NeighboursText(const std::array<double, 2>& neighbours) {
  return absl::StrJoin(neighbours, ", ", [](std::string* text, double difference) {
    if (std::isnan(difference)) {
      absl::StrAppend(text, "edge");
    } else if (std::isinf(difference)) {
      absl::StrAppend(text, "diverged");
    } else {
      absl::StrAppendFormat(text, "%+.3f", difference);
    }
  });
}

Table SummaryTable(const StudyPlan& plan, const StudyResults& results, bool with_times) {
  Table table;
  const bool is_matched = plan.study.match() > v1::Study::STEPS;
  table.columns = {"model", "parameters"};
  if (!with_times || is_matched) table.columns.push_back("FLOPs/token");
  if (is_matched) table.columns.push_back("steps");
  if (!with_times) table.columns.push_back("memory");
  table.columns.push_back("runs");
  const bool has_validation = !results.comparisons[kValidation].empty();
  table.columns.insert(table.columns.end(), std::begin(kMetricNames), std::end(kMetricNames));
  if (!has_validation) table.columns.pop_back();  // the last metric
  const bool has_places =
      !results.best && plan.models.size() > 1 &&
      std::any_of(results.places.begin(), results.places.end(),
                  [](const std::optional<Places>& places) { return places.has_value(); });
  if (has_places) table.columns.push_back("place");
  if (with_times) table.columns.insert(table.columns.end(), {"seconds", "tokens/s"});
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
    if (group.runs == 0) continue;
    std::vector<Cell> row = {TextCell(planned.name), CountCell(planned.parameters)};
    if (!with_times || is_matched) row.push_back(FlopsCell(planned.flops_per_token));
    if (is_matched) row.push_back(CountCell(planned.training.max_steps));
    if (!with_times) row.push_back(MemoryCell(planned.memory.total));
    row.push_back(CountCell(group.runs));
    for (int m = 0; m < kMetrics; ++m) {
      if (m != kValidation || has_validation) row.push_back(MeanCell(group.metric[m], 3));
    }
    if (has_places) row.push_back(PlaceCell(results.places[planned.model]));
    if (with_times) {
      row.push_back(MeanCell(group.seconds, group.seconds.mean < 10 ? 2 : 0));
      row.push_back(MeanCell(group.tokens_per_second, 0));
    }
    if (has_spikes) row.push_back(CountCell(group.spikes));
    if (has_survived) row.push_back(CountCell(group.survived));
    row.push_back(DivergedCell(plan, results, group));
    row.push_back(CountCell(group.collapsed));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table PaperTable(const Table& summary) {
  Table table;
  table.rows.resize(summary.rows.size());
  for (size_t i = 0; i < summary.columns.size(); ++i) {
    const std::string& name = summary.columns[i];
    const auto is = [&name](const char* other) { return name == other; };
    const bool counts_failures = is("diverged") || is("collapsed");
    const bool has_room = is("model") || is("parameters") || is("steps") || is("runs") ||
                          is("place") || is(kMetricNames[kLast100]) ||
                          is(kMetricNames[kValidation]);
    const bool has_failed =
        counts_failures && std::any_of(summary.rows.begin(), summary.rows.end(),
                                       [i](const auto& row) { return row[i].text != "0"; });
    if (!has_room && !has_failed) continue;
    table.columns.push_back(name);
    for (size_t row = 0; row < table.rows.size(); ++row) {
      table.rows[row].push_back(summary.rows[row][i]);
    }
  }
  return table;
}

Table PairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = DifferenceColumns(plan, {"difference", "metric"});
  for (const GroupPair& pair : ReportedPairs(plan, results)) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.difference->a != 0) continue;
    std::string name =
        PairName(plan, results.comparisons[pair.metric][pair.cell], *pair.difference);
    if (!plan.cells[pair.cell].empty()) {
      absl::StrAppend(&name, ", ", CellName(plan.cells[pair.cell]));
    }
    std::vector<Cell> row = {TextCell(std::move(name)), TextCell(kMetricNames[pair.metric])};
    for (Cell& cell : DifferenceCells(plan, *pair.difference)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table BestTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  const BestSettings& best = *results.best;
  table.columns = {"model", "best setting"};
  if (!best.neighbours.empty()) table.columns.push_back("next lower, higher");
  table.columns.insert(table.columns.end(),
                       {kMetricNames[results.judged], "seeds", "place", "mean rank"});
  for (size_t model : best.comparison.Ranked()) {
    const double mean_rank = results.mean_ranks[model];
    std::vector<Cell> row = {TextCell(ResultName(plan, best.comparison, model)),
                             TextCell(CellName(plan.cells[best.cells[model]]))};
    if (!best.neighbours.empty()) row.push_back(TextCell(NeighboursText(best.neighbours[model])));
    row.insert(row.end(),
               {MeanCell(best.comparison.models[model].loss, 3),
                CountCell(best.comparison.models[model].runs()), PlaceCell(results.places[model]),
                TextCell(std::isnan(mean_rank) ? "–" : absl::StrFormat("%.1f", mean_rank))});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table BestPairedTable(const StudyPlan& plan, const StudyResults& results) {
  Table table;
  table.columns = DifferenceColumns(plan, {"difference at best settings"});
  const Comparison& comparison = results.best->comparison;
  for (const PairedDifference& pair : comparison.pairs) {
    if (plan.models.size() > kMaxModelsOfPairs && pair.a != 0) continue;
    std::vector<Cell> row = {TextCell(PairName(plan, comparison, pair))};
    for (Cell& cell : DifferenceCells(plan, pair)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string MarkdownText(absl::string_view text) {
  const std::string line = OneLine(text);
  std::string escaped;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_in_word = line[i] == '_' && i > 0 && absl::ascii_isalnum(line[i - 1]);
    const bool is_less = line[i] == '<' && i + 1 < line.size() && absl::ascii_isdigit(line[i + 1]);
    if (absl::StrContains("\\`*_[]|<&~", line[i]) && !is_in_word && !is_less) escaped += '\\';
    escaped += line[i];
  }
  return escaped;
}

std::string ToMarkdown(const Table& table) {
  std::string text;
  for (const std::vector<std::string>& row : EscapedRows(table, MarkdownText)) {
    const bool is_head = text.empty();
    absl::StrAppend(&text, "| ", absl::StrJoin(row, " | "), " |\n");
    if (!is_head) continue;
    for (size_t i = 0; i < row.size(); ++i) absl::StrAppend(&text, i == 0 ? "|---|" : "---:|");
    text += "\n";
  }
  return text;
}

std::string ToText(const Table& table) {
  // The first column is text, all others are numbers.
  return AlignColumns(EscapedRows(table, OneLine), "l" + std::string(table.columns.size() - 1, 'r'),
                      "");
}

std::string ToLatex(const Table& table) {
  std::string text = absl::StrCat("\\begin{tabular}{l", std::string(table.columns.size() - 1, 'r'),
                                  "}\n\\toprule\n");
  const auto rows = EscapedRows(table, LatexText);
  for (size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppend(&text, absl::StrJoin(rows[i], " & "), " \\\\\n", i == 0 ? "\\midrule\n" : "");
  }
  return absl::StrCat(text, "\\bottomrule\n\\end{tabular}\n");
}

std::string TableMarkdown(const StudyPlan& plan, const StudyResults& results) {
  const Table summary = SummaryTable(plan, results, /*with_times=*/false);
  std::string text;
  if (!plan.study.title().empty()) {
    text = absl::StrCat("# ", MarkdownText(plan.study.title()), "\n\n");
  }
  absl::StrAppend(&text, ToMarkdown(summary));
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
  if (has("place")) {
    absl::StrAppend(&text,
                    "Place: in the order by diverged runs and then mean loss, in 95 % of the "
                    "bootstrap's samples of seeds.\n");
  }
  absl::StrAppend(&text, "\n", MarkdownText(Conclusion(plan, results)), "\n");
  if (results.best) {
    const size_t chosen_with = results.best->chosen_with;
    absl::StrAppend(&text, "\n", ToMarkdown(BestTable(plan, results)), "\n",
                    ToMarkdown(BestPairedTable(plan, results)),
                    "\nSettings were chosen by the first ",
                    Count(static_cast<int64_t>(chosen_with), "seed"),
                    ", and these losses are of the other seeds. Mean rank: over all settings and "
                    "seeds.\n");
  }
  if (const Table paired = PairedTable(plan, results); !paired.rows.empty()) {
    absl::StrAppend(
        &text, "\n", ToMarkdown(paired),
        "\nDifferences are paired by seed; below 0 the first model has the lower loss. Test: t, "
        "Student's paired\nt-test; sign flips, the permutation test, if a run collapsed; signs, "
        "the exact sign test, if a run diverged,\nwhich is worse than any loss. p (Holm): adjusted "
        "for all differences from the first model in all cells,\nand those between the others "
        "for all pairs. Intervals are Student's t.\n");
  }
  return text;
}

std::string TableCsv(const StudyPlan& plan, const StudyResults& results) {
  std::string text = "group,model";
  for (const v1::Grid& axis : plan.study.grid()) {
    absl::StrAppend(&text, ",", CsvText(axis.field()));
  }
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
    if (group.runs == 0) continue;
    absl::StrAppend(&text, CsvText(planned.name), ",", CsvText(plan.models[planned.model].name));
    for (const auto& setting : planned.settings) {
      absl::StrAppend(&text, ",", CsvText(setting.second));
    }
    absl::StrAppend(&text, ",", planned.parameters, ",", CsvNumber(planned.flops_per_token), ",",
                    planned.training.max_steps, ",");
    if (planned.memory.total > 0) absl::StrAppend(&text, planned.memory.total);
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
  for (const v1::Grid& axis : plan.study.grid()) {
    absl::StrAppend(&text, ",", CsvText(axis.field()));
  }
  absl::StrAppend(&text, ",seed,status,steps,collapsed,spikes,skips");
  for (int m = 0; m < kMetrics; ++m) absl::StrAppend(&text, ",", ColumnName(m));
  absl::StrAppend(&text,
                  ",unigram_entropy,parameters,flops_per_token,tokens,model_hash,"
                  "recipe_hash,data_hash,run_hash\n");
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const PlanGroup& group = plan.groups[plan.runs[i].group];
    const RunRecord& record = results.records[i];
    if (!record.is_present) continue;
    absl::StrAppend(&text, CsvText(group.name), ",", CsvText(plan.models[group.model].name));
    for (const auto& setting : group.settings) absl::StrAppend(&text, ",", CsvText(setting.second));
    absl::StrAppend(&text, ",", plan.runs[i].seed, ",", StatusName(record.result.status), ",",
                    record.result.step, ",", results.runs[i].collapsed ? 1 : 0, ",",
                    record.result.spikes, ",", record.result.skips);
    for (const std::optional<double>& metric : results.runs[i].metric) {
      absl::StrAppend(&text, ",", metric ? absl::StrFormat("%.17g", *metric) : "");
    }
    absl::StrAppend(&text, ",",
                    CsvNumber(group.unigram_entropies[i % group.unigram_entropies.size()]), ",",
                    group.parameters, ",", CsvNumber(group.flops_per_token), ",", record.tokens,
                    ",", group.fingerprint, ",", Sha256(group.training.train_text).substr(0, 16),
                    ",", group.training.data_hash, ",", plan.runs[i].ShortHash(), "\n");
  }
  return text;
}

std::string TimingCsv(const StudyPlan& plan, const StudyResults& results) {
  std::string text = "group,seed,seconds,tokens,tokens_per_second\n";
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const RunRecord& record = results.records[i];
    if (!record.is_present) continue;
    absl::StrAppend(&text, CsvText(plan.groups[plan.runs[i].group].name), ",", plan.runs[i].seed,
                    ",", CsvNumber(record.seconds), ",", record.tokens, ",",
                    CsvNumber(record.TokensPerSecond()), "\n");
  }
  return text;
}

}  // namespace plumb
