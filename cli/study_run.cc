#include "cli/study_run.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/compare/report_data.h"
#include "cli/compare/requirements.h"
#include "cli/compare/run_all.h"
#include "cli/compare/study_directory.h"
#include "cli/compare/tables.h"
#include "cli/report/report.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Everything but study.pbtxt and the runs.
absl::Status WriteFiles(const Plan& plan, const StudyResults& results, const Json& report) {
  std::string metrics;
  for (const RunRecord& record : results.records) metrics += record.metrics;
  const std::pair<const char*, std::string> files[] = {
      {"metrics.jsonl", std::move(metrics)},
      {"timing.csv", TimingCsv(plan, results)},
      {"report.json", report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.html", RenderReport(report)},
      {"table.csv", TableCsv(plan, results)},
      {"table.md", TableMarkdown(plan, results)}};
  for (const auto& [name, content] : files) {
    const absl::Status written = WriteFile(absl::StrCat(plan.out, "/", name), content);
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

absl::Status CheckIsNoRun(const std::string& out) {
  std::error_code error;
  if (!std::filesystem::exists(absl::StrCat(out, "/model.pbtxt"), error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(out, ": holds a single run; choose another --out for the study"));
}

}  // namespace

std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=.,:/@%") == std::string::npos;
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

absl::StatusOr<std::unique_ptr<HostRuntime>> WithThreads(Invocation invocation, int threads) {
  invocation.threads = threads;
  return invocation.CreateRuntime();
}

StudyTimer::StudyTimer() : begin(std::chrono::steady_clock::now()), started(UtcNow()) {}

absl::StatusOr<StudyOutcome> RunStudy(const StudyRequest& request, const StudyTimer& timer,
                                      const Invocation& invocation, HostRuntime* runtime) {
  if (const absl::Status status = CheckIsNoRun(request.out); !status.ok()) return status;
  absl::StatusOr<Plan> plan = MakePlan(request.study, request.out, runtime);
  if (!request.quiet) PrintWarnings(runtime);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<Requirements> requirements = RequirementsOf(*plan, runtime->threads());
  if (!requirements.ok()) return requirements.status();
  if (absl::Status fits = CheckFits(*requirements, *plan); !fits.ok()) return fits;
  const absl::StatusOr<StudyLock> lock = StudyLock::Acquire(request.out);
  if (!lock.ok()) return lock.status();
  const absl::Status claimed = ClaimDirectory(request.out, plan->StudyText());
  if (!claimed.ok()) return claimed;

  RunAllOptions options;
  options.division = requirements->division;
  options.quiet = request.quiet;
  options.create_runtime = [&invocation](int threads) { return WithThreads(invocation, threads); };
  const absl::Status ran = RunAll(*plan, options);
  if (absl::IsCancelled(ran) && !request.quiet) {
    PrintNote(absl::StrCat("interrupted; the same command resumes it:\n  ", request.command));
  }
  if (!ran.ok()) return ran;
  absl::StatusOr<StudyResults> results = CollectResults(*plan);
  if (!results.ok()) return results.status();

  Provenance provenance;
  provenance.command = request.command;
  provenance.started = timer.started;
  provenance.threads = runtime->threads();
  // The time of all runs, in this process or before the study was resumed.
  double trained = 0;
  for (const RunRecord& record : results->records) trained += record.seconds;
  provenance.seconds = std::max(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - timer.begin).count(),
      trained / provenance.threads);
  Json report = ReportData(*plan, *results, provenance, runtime);
  if (const absl::Status written = WriteFiles(*plan, *results, report); !written.ok()) {
    return written;
  }
  return StudyOutcome{*std::move(plan), *std::move(results), std::move(report)};
}

std::string OutcomeText(const StudyOutcome& outcome) {
  const auto& [plan, results, report] = outcome;
  std::string text = ToText(SummaryTable(plan, results, /*with_times=*/true));
  if (!results.paired.empty()) absl::StrAppend(&text, "\n", ToText(PairedTable(plan, results)));
  absl::StrAppend(&text, "\nreport  ", plan.out, "/report.html\n");
  return text;
}

}  // namespace plumb::cli
