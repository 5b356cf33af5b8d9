// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/study_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text_format.h"
#include "runtime/report/conclusion.h"
#include "runtime/report/tables.h"

namespace plumb {
namespace {

std::string ColumnName(int metric) {
  return absl::StrReplaceAll(kMetricNames[metric], {{" ", "_"}});
}

}  // namespace

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
  absl::StrAppend(&text, "\n", MarkdownText(Conclusion(plan, results)), "\n");
  if (results.best) {
    const size_t chosen_with = results.best->chosen_with;
    absl::StrAppend(&text, "\n", ToMarkdown(BestTable(plan, results)), "\n",
                    ToMarkdown(BestPairedTable(plan, results)),
                    "\nSettings were chosen by the first ",
                    Count(static_cast<int64_t>(chosen_with), "seed"),
                    ", and these losses are of the other seeds. Mean rank: over all settings.\n");
  }
  if (const Table paired = PairedTable(plan, results); !paired.rows.empty()) {
    absl::StrAppend(
        &text, "\n", ToMarkdown(paired),
        "\nDifferences are paired by seed, over the seeds with which neither diverged; "
        "intervals are Student's t.\np (Holm): of Student's paired t-test, adjusted "
        "for all pairs in all cells. p (signs): of the sign-flip\npermutation test, not "
        "adjusted; it does not assume normal losses, and needs six seeds to reach 0.05.\n");
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
