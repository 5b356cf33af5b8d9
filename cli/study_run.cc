// SPDX-License-Identifier: Apache-2.0
#include "cli/study_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/compare/plan.h"
#include "cli/compare/report_data.h"
#include "cli/compare/run_all.h"
#include "cli/compare/sha256.h"
#include "cli/compare/study_directory.h"
#include "cli/figures.h"
#include "cli/interrupt.h"
#include "cli/report/report.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"
#include "runtime/ranks/collectives.h"

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

std::string ThisHost() {
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Writes all files of a study except study.pbtxt and the runs.
absl::Status WriteFiles(const Plan& plan, const StudyResults& results, const Json& report,
                        const Json& provenance) {
  std::string metrics;
  for (const RunRecord& record : results.records) metrics += record.metrics;
  const std::pair<const char*, std::string> files[] = {
      {"metrics.jsonl", std::move(metrics)},
      {"runs.csv", RunsCsv(plan, results)},
      {"timing.csv", TimingCsv(plan, results)},
      {"provenance.json", provenance.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.json", report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.html", RenderReport(report)},
      {"table.csv", TableCsv(plan, results)},
      {"table.md", TableMarkdown(plan, results)}};
  for (const auto& [name, content] : files) {
    PLUMB_RETURN_IF_ERROR(WriteFile(absl::StrCat(plan.out, "/", name), content));
  }
  return absl::OkStatus();
}

absl::Status CheckIsNoRun(const std::string& out) {
  std::error_code error;
  if (!std::filesystem::exists(absl::StrCat(out, "/model.pbtxt"), error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(out, ": holds a single run; choose another --out for the study"));
}

// Makes the plan and prints warnings about it.
absl::StatusOr<Plan> MakePlanWithWarnings(const StudyRequest& request, HostRuntime* runtime) {
  absl::StatusOr<Plan> plan = MakePlan(request.study, request.out, runtime);
  if (!request.quiet) PrintWarnings(runtime);
  if (!plan.ok()) return plan;
  if (!request.quiet) {
    for (const std::string& warning : plan->warnings) PrintNote(absl::StrCat("warning: ", warning));
  }
  plan->shard = request.shard;
  return plan;
}

absl::StatusOr<Plan> PlanStudy(const StudyRequest& request, HostRuntime* runtime) {
  PLUMB_RETURN_IF_ERROR(CheckIsNoRun(request.out));
  return MakePlanWithWarnings(request, runtime);
}

// Acquires the lock on a study's directory, and removes remains of a killed process.
absl::StatusOr<StudyLock> OpenDirectory(const std::string& out) {
  PLUMB_ASSIGN_OR_RETURN(StudyLock lock, StudyLock::Acquire(out));
  PLUMB_RETURN_IF_ERROR(RemoveIncomingRuns(out));
  return lock;
}

// Fails if anything differs between ranks; warns if only the kind of processor does. Collective.
absl::Status CheckRanksAgree(const StudyRequest& request, const Plan& plan, HostRuntime* runtime) {
  std::vector<Fact> facts = {{"version of plumb", VersionText()}};
  for (const PlanGroup& group : plan.groups) {
    facts.emplace_back(absl::StrCat("model of ", group.name), group.fingerprint);
    facts.emplace_back(absl::StrCat("recipe of ", group.name),
                       Sha256(group.training.train_text).substr(0, 16));
    facts.emplace_back(absl::StrCat("choice of norm plugins of ", group.name),
                       absl::StrReplaceAll(absl::StripSuffix(group.norms, "\n"), {{"\n", ", "}}));
    facts.emplace_back("data", group.training.data_hash);
  }
  facts.emplace_back("study", Sha256(plan.StudyText()).substr(0, 16));
  Communicator* const ranks = request.launch->ranks();
  if (absl::Status agree = AllAgree(ranks, facts); !agree.ok()) {
    // The code must not be that of a plugin error.
    return absl::IsFailedPrecondition(agree) ? absl::InvalidArgumentError(agree.message()) : agree;
  }
  const std::vector<Fact> roundings = {{"rounding", std::string(runtime->matmul())}};
  const absl::Status rounding = AllAgree(ranks, roundings);
  if (!absl::IsFailedPrecondition(rounding)) return rounding;
  if (request.leads() && !request.quiet) {
    PrintNote(absl::StrCat("warning: ", rounding.message(),
                           "; a run's numbers depend on the rank that trains it"));
  }
  return absl::OkStatus();
}

// Returns how many of the `left` remaining runs this rank trains concurrently.
Division DivisionOfRank(const StudyRequest& request, const Plan& plan, int64_t left, int threads) {
  const std::vector<std::string>& hosts = request.launch->hosts();
  const auto here = std::count(hosts.begin(), hosts.end(), hosts[request.launch->rank()]);
  int64_t memory = 0;
  for (const PlanGroup& group : plan.groups) memory = std::max(memory, group.memory.total);
  const int64_t size = request.launch->size();
  const auto mine = static_cast<size_t>((left + size - 1) / size);
  return Divide(threads, mine, memory, ProcessMemoryLimit().available / here);
}

void PrintInterrupted(const StudyRequest& request) {
  if (request.quiet) return;
  PrintNote(absl::StrCat("interrupted; the same command resumes it:\n  ", request.command));
}

absl::Status RunAllHere(const StudyRequest& request, const Plan& plan, Division division,
                        const Invocation& invocation) {
  const Interrupts interrupts("the training steps of the runs, or their checkpoints");
  RunAllOptions options;
  options.division = division;
  options.quiet = request.quiet;
  options.create_runtime = [&invocation](int threads) { return WithThreads(invocation, threads); };
  bool told = false;
  options.interrupted = [&] {
    // Reports to the user immediately, because a launcher gives its ranks little time (mpirun one
    // second).
    if (interrupts.requested() && request.is_shared() && request.leads() && !told) {
      told = true;
      PrintInterrupted(request);
    }
    return interrupts.requested();
  };
  if (request.is_shared()) options.ranks = request.launch->ranks();
  const absl::Status ran = RunAll(plan, options);
  if (absl::IsCancelled(ran) && !told) PrintInterrupted(request);
  return ran;
}

// Trains the runs that have not ended. Sets `lock` to the lock on the directory.
absl::Status TrainRuns(const StudyRequest& request, const Plan& plan, const Invocation& invocation,
                       HostRuntime* runtime, std::optional<StudyLock>* lock) {
  if (request.is_shared()) {
    PLUMB_RETURN_IF_ERROR(CheckRanksAgree(request, plan, runtime));
  }
  PLUMB_ASSIGN_OR_RETURN(const Requirements requirements, RequirementsOf(plan, runtime->threads()));
  PLUMB_RETURN_IF_ERROR(CheckFits(requirements, plan));
  PLUMB_ASSIGN_OR_RETURN(StudyLock opened, OpenDirectory(request.out));
  lock->emplace(std::move(opened));
  PLUMB_RETURN_IF_ERROR(ClaimDirectory(request.out, plan.StudyText()));
  Division division = requirements.division;
  if (request.is_shared()) {
    auto left = static_cast<int64_t>(requirements.runs - requirements.ended);
    PLUMB_RETURN_IF_ERROR(Broadcast(request.launch->ranks(), 0, &left, sizeof(left)));
    division = DivisionOfRank(request, plan, left, runtime->threads());
  }
  return RunAllHere(request, plan, division, invocation);
}

// Directory that is removed by the destructor.
class TemporaryDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Make() {
    std::error_code error;
    const std::filesystem::path place = std::filesystem::temp_directory_path(error);
    std::string path = (place / "plumb-compare-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat(path, ": cannot be made; TMPDIR names the place of temporary directories"));
    }
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(path));
  }
  ~TemporaryDirectory() { (void)RemoveTree(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
  const UnfinishedPath unfinished_{path_};
};

absl::StatusOr<StudyOutcome> ConcludeStudy(const StudyRequest& request, const StudyTimer& timer,
                                           Plan plan, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(StudyResults results, CollectResults(plan));
  Provenance provenance;
  provenance.command = request.command;
  provenance.started = timer.started;
  provenance.threads = runtime->threads();
  provenance.hosts = {ThisHost()};
  if (request.is_shared()) {
    const std::vector<std::string>& hosts = request.launch->hosts();
    const std::set<std::string> different(hosts.begin(), hosts.end());
    provenance.hosts.assign(different.begin(), different.end());
  }
  // Training time of all runs, including the time before the study was resumed.
  double trained = 0;
  for (const RunRecord& record : results.records) trained += record.seconds;
  provenance.seconds = std::max(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - timer.begin).count(),
      trained / provenance.threads);
  Json report = ReportData(plan, results, runtime);
  Json origin = ProvenanceData(plan, results, provenance);
  PLUMB_RETURN_IF_ERROR(WriteFiles(plan, results, report, origin));
  return StudyOutcome{std::move(plan), std::move(results), std::move(report), std::move(origin)};
}

// Seconds of a group's steps.
struct GroupTime {
  StepTime step;
  double run = 0;  // all steps of one run
};

absl::StatusOr<std::vector<GroupTime>> TimeGroups(const Plan& plan, bool quiet,
                                                  HostRuntime* runtime) {
  std::vector<GroupTime> times;
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    if (!quiet && plan.groups.size() > 1) {
      PrintNote(absl::StrCat("timing ", plan.groups[group].name, " (", group + 1, " of ",
                             plan.groups.size(), ")"));
    }
    PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainRun> run,
                           OpenWithoutFiles(plan, group, runtime));
    const absl::StatusOr<StepTime> step = TimeStep(run.get());
    if (!step.ok()) {
      return absl::Status(step.status().code(),
                          absl::StrCat(plan.groups[group].name, ": ", step.status().message()));
    }
    const auto steps = static_cast<double>(plan.groups[group].training.max_steps);
    times.push_back({*step, step->seconds * steps});
  }
  return times;
}

std::string ToText(const Plan& plan, const Requirements& needs, const std::vector<GroupTime>& times,
                   double seconds) {
  Table table{{"", "parameters", "memory of a run", "s/step", "steps", "time of a run"}, {}};
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& group = plan.groups[i];
    table.rows.push_back({{group.name},
                          {WithCommas(group.parameters)},
                          {Bytes(group.memory.total)},
                          {absl::StrFormat("%.3g", times[i].step.seconds)},
                          {WithCommas(group.training.max_steps)},
                          {Duration(times[i].run)}});
  }
  std::string text =
      absl::StrCat(ToText(table), "\nruns    ", Count(static_cast<int64_t>(needs.runs), "run"));
  if (needs.ended > 0) absl::StrAppend(&text, ", of which ", needs.ended, " have ended");
  absl::StrAppend(&text, "; ", needs.division.workers, " at a time, each on ",
                  Count(needs.division.threads, "thread"), "\ntime    about ", Duration(seconds),
                  "  (steps timed alone; without validation, checkpoints and samples)\nmemory  ",
                  Bytes(needs.memory), " of ", Bytes(needs.memory_limit.available), " available (",
                  needs.memory_limit.by, ")\ndisk    ", Bytes(needs.disk));
  if (needs.free_disk >= 0) absl::StrAppend(&text, " of ", Bytes(needs.free_disk), " available");
  return absl::StrCat(text, "\n\nNothing was written to ", plan.out, ".\n");
}

Json ToJson(const Plan& plan, const Requirements& needs, const std::vector<GroupTime>& times,
            double seconds) {
  Json groups = Json::array();
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& group = plan.groups[i];
    groups.push_back({{"name", group.name},
                      {"parameters", group.parameters},
                      {"max_steps", group.training.max_steps},
                      {"memory", MemoryJson(group.memory)},
                      {"disk", group.disk.total},
                      {"step",
                       {{"seconds", times[i].step.seconds},
                        {"tokens", times[i].step.tokens},
                        {"taken", times[i].step.steps}}},
                      {"seconds", times[i].run}});
  }
  return {{"status", "dry-run"},
          {"out", plan.out},
          {"groups", std::move(groups)},
          {"runs", needs.runs},
          {"ended", needs.ended},
          {"runs_at_a_time", needs.division.workers},
          {"threads_of_a_run", needs.division.threads},
          {"seconds", seconds},
          {"memory", needs.memory},
          {"memory_available", needs.memory_limit.available},
          {"memory_limited_by", needs.memory_limit.by},
          {"disk", {{"total", needs.disk}, {"available", needs.free_disk}}}};
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
  PLUMB_ASSIGN_OR_RETURN(Plan plan, PlanStudy(request, runtime));
  std::optional<StudyLock> lock;
  PLUMB_RETURN_IF_ERROR(TrainRuns(request, plan, invocation, runtime, &lock));
  return ConcludeStudy(request, timer, std::move(plan), runtime);
}

absl::StatusOr<Plan> RunShard(const StudyRequest& request, const Invocation& invocation,
                              HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(Plan plan, PlanStudy(request, runtime));
  std::optional<StudyLock> lock;
  PLUMB_RETURN_IF_ERROR(TrainRuns(request, plan, invocation, runtime, &lock));
  return plan;
}

absl::Status FollowStudy(const StudyRequest& request, const Invocation& invocation,
                         HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> directory,
                         TemporaryDirectory::Make());
  PLUMB_ASSIGN_OR_RETURN(const Plan plan, MakePlan(request.study, directory->path(), runtime));
  PLUMB_RETURN_IF_ERROR(CheckRanksAgree(request, plan, runtime));
  int64_t left = 0;
  PLUMB_RETURN_IF_ERROR(Broadcast(request.launch->ranks(), 0, &left, sizeof(left)));
  const Division division = DivisionOfRank(request, plan, left, runtime->threads());
  return RunAllHere(request, plan, division, invocation);
}

absl::StatusOr<StudyOutcome> MergeStudy(const StudyRequest& request,
                                        const std::vector<std::string>& directories,
                                        const StudyTimer& timer, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(Plan plan, PlanStudy(request, runtime));
  PLUMB_ASSIGN_OR_RETURN(const StudyLock lock, OpenDirectory(request.out));
  PLUMB_RETURN_IF_ERROR(MergeRuns(plan, directories));
  return ConcludeStudy(request, timer, std::move(plan), runtime);
}

std::string OutcomeText(const StudyOutcome& outcome) {
  const auto& [plan, results, report, origin] = outcome;
  std::string text = ToText(SummaryTable(plan, results, /*with_times=*/true));
  if (results.best) {
    absl::StrAppend(&text, "\n", ToText(BestTable(plan, results)), "\n",
                    ToText(BestPairedTable(plan, results)));
  } else if (const Table paired = PairedTable(plan, results); !paired.rows.empty()) {
    absl::StrAppend(&text, "\n", ToText(paired));
  }
  absl::StrAppend(&text, "\n", Conclusion(plan, results), "\n");
  absl::StrAppend(&text, "\nreport  ", plan.out, "/report.html\n");
  return text;
}

absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, const Invocation& invocation,
                              HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(const Plan plan, MakePlanWithWarnings(request, runtime));
  PLUMB_ASSIGN_OR_RETURN(const Requirements needs, RequirementsOf(plan, runtime->threads()));
  PLUMB_RETURN_IF_ERROR(CheckFits(needs, plan));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> worker,
                         WithThreads(invocation, needs.division.threads));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<GroupTime> times,
                         TimeGroups(plan, request.quiet, worker.get()));
  double seconds = 0;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.shard.Has(i)) seconds += times[plan.runs[i].group].run;
  }
  if (needs.runs > 0) {
    seconds *= static_cast<double>(needs.runs - needs.ended) / static_cast<double>(needs.runs);
  }
  seconds /= needs.division.workers;
  return json ? PrintJson(ToJson(plan, needs, times, seconds))
              : PrintResult(ToText(plan, needs, times, seconds));
}

}  // namespace plumb::cli
