// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/study_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/base/unfinished_paths.h"
#include "runtime/ranks/collectives.h"
#include "runtime/report/conclusion.h"
#include "runtime/report/report.h"
#include "runtime/report/tables.h"
#include "runtime/study/found_runs.h"
#include "runtime/study/run_record.h"
#include "runtime/study/run_store.h"
#include "runtime/study/study_directory.h"
#include "runtime/study/train_runs.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

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
absl::Status WriteFiles(const StudyPlan& plan, const StudyResults& results, const Json& report,
                        const Json& provenance) {
  std::vector<std::pair<const char*, std::string>> files = {
      {"runs.csv", RunsCsv(plan, results)},
      {"timing.csv", TimingCsv(plan, results)},
      {"provenance.json", provenance.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.json", report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.html", RenderReport(PageData(report, plan, results))},
      {"table.csv", TableCsv(plan, results)},
      {"table.md", TableMarkdown(plan, results)},
      {"table.tex", ToLatex(PaperTable(SummaryTable(plan, results, /*with_times=*/false)))},
      {"differences.tex",
       ToLatex(results.best ? BestPairedTable(plan, results) : PairedTable(plan, results))}};
  if (results.best) {
    files.emplace_back("best.tex", ToLatex(BestTable(plan, results)));
  } else {
    std::error_code error;  // that there is none
    std::filesystem::remove(absl::StrCat(plan.out, "/best.tex"), error);
  }
  for (const auto& [name, content] : files) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(plan.out, "/", name), content));
  }
  return absl::OkStatus();
}

absl::Status CheckIsNoRun(const std::string& out) {
  std::error_code error;
  if (!std::filesystem::exists(absl::StrCat(out, "/model.pbtxt"), error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(out, ": holds a single run; choose another --out for the study"));
}

// Acquires the lock on a study's directory, and removes remains of a killed process.
absl::StatusOr<StudyLock> OpenDirectory(const std::string& out) {
  PLUMB_ASSIGN_OR_RETURN(StudyLock lock, StudyLock::Acquire(out));
  PLUMB_RETURN_IF_ERROR(RemoveIncomingRuns(out));
  return lock;
}

// Fails if anything differs between ranks; warns if only the kind of processor does. Collective.
absl::Status CheckRanksAgree(const StudyRequest& request, const StudyPlan& plan, StudyHost* host,
                             HostRuntime* runtime) {
  std::vector<Fact> facts = {{"version of plumb", VersionText()}};
  for (const PlanGroup& group : plan.groups) {
    const size_t first = static_cast<size_t>(&group - plan.groups.data()) * plan.seeds.size();
    for (const auto& [name, part] : plan.runs[first].identity.parts()) {
      facts.emplace_back(absl::StrCat(name, " of ", group.name), part);
    }
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
  if (request.leads()) {
    host->Warn(
        absl::StrCat(rounding.message(), "; a run's numbers depend on the rank that trains it"));
  }
  return absl::OkStatus();
}

// Returns how many of the `left` remaining runs this rank trains concurrently.
StudyDivision DivisionOfRank(const StudyRequest& request, const StudyPlan& plan, int64_t left,
                             int threads) {
  const std::vector<std::string>& hosts = request.launch->hosts();
  const auto here = std::count(hosts.begin(), hosts.end(), hosts[request.launch->rank()]);
  int64_t memory = 0;
  for (const PlanGroup& group : plan.groups) memory = std::max(memory, group.memory.total);
  const int64_t size = request.launch->size();
  const auto mine = static_cast<size_t>((left + size - 1) / size);
  return Divide(threads, mine, memory, ProcessMemoryLimit().available / here);
}

Communicator* GetRanks(const StudyRequest& request) {
  return request.is_shared() ? request.launch->ranks() : nullptr;
}

// Returns the runs of the plan that have ended or not, as `ended` says.
absl::StatusOr<std::vector<const PlanRun*>> SelectRuns(bool ended, const StudyPlan& plan) {
  std::vector<const PlanRun*> runs;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (!plan.Has(i)) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> result,
                           ReadRunResult(plan.runs[i].directory));
    if (result.has_value() == ended) runs.push_back(&plan.runs[i]);
  }
  return runs;
}

// Opens the store of the request. Returns nullopt, with a warning, if the file system fails.
absl::StatusOr<std::optional<RunStore>> OpenStore(const StudyRequest& request, StudyHost* host) {
  if (request.store.empty()) return std::nullopt;
  absl::StatusOr<RunStore> store = RunStore::Open(request.store);
  if (store.ok()) return std::optional<RunStore>(*std::move(store));
  if (absl::IsInvalidArgument(store.status())) return store.status();
  host->Warn(absl::StrCat("the store is not used: ", store.status().message()));
  return std::nullopt;
}

// Copies the runs that have not ended from the store, as far as it has them. Warns of entries that
// are damaged; their runs are trained.
absl::Status FetchRuns(const StudyPlan& plan, const RunStore& store, StudyHost* host) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<const PlanRun*> missing,
                         SelectRuns(/*ended=*/false, plan));
  int64_t fetched = 0;
  for (const PlanRun* run : missing) {
    if (!run->identity.UnknownPart().empty()) continue;
    const absl::StatusOr<bool> found = store.Fetch(run->identity.Hash(), run->directory);
    if (!found.ok()) {
      host->Warn(absl::StrCat("a run of the store is trained again: ", found.status().message()));
    } else if (*found) {
      ++fetched;
    }
  }
  if (fetched > 0) host->Note(absl::StrCat("copied ", Count(fetched, "run"), " from the store"));
  return absl::OkStatus();
}

// Stores the runs that have ended. Warns if the store cannot take them.
absl::Status StoreRuns(const StudyPlan& plan, const RunStore& store, StudyHost* host) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<const PlanRun*> ended, SelectRuns(/*ended=*/true, plan));
  for (const PlanRun* run : ended) {
    const absl::Status put = store.Put(run->directory);
    if (put.ok()) continue;
    host->Warn(absl::StrCat("runs of this study are not in the store: ", put.message()));
    break;
  }
  return absl::OkStatus();
}

// Trains the runs of the plan that have not ended and are not skipped.
absl::Status TrainPhase(const StudyRequest& request, const StudyPlan& plan,
                        const std::optional<RunStore>& store, StudyHost* host,
                        HostRuntime* runtime) {
  if (store) PLUMB_RETURN_IF_ERROR(FetchRuns(plan, *store, host));
  PLUMB_ASSIGN_OR_RETURN(const StudyRequirements requirements,
                         ComputeRequirements(plan, runtime->threads()));
  StudyDivision division = requirements.division;
  if (request.is_shared()) {
    auto left = static_cast<int64_t>(requirements.runs - requirements.ended);
    PLUMB_RETURN_IF_ERROR(Broadcast(request.launch->ranks(), 0, &left, sizeof(left)));
    division = DivisionOfRank(request, plan, left, runtime->threads());
  }
  const absl::Status trained = TrainRuns(plan, division, GetRanks(request), host);
  // An interrupted study stores what has ended.
  if (store) PLUMB_RETURN_IF_ERROR(StoreRuns(plan, *store, host));
  return trained;
}

// Fails, on every rank, if options of the request exclude each other.
absl::Status CheckRequest(const StudyRequest& request, const StudyPlan& plan) {
  if ((plan.chooses() || !plan.range.empty()) && request.is_shared()) {
    return absl::InvalidArgumentError(
        "--choosing-seeds, and ranges of --grid: the study is trained by one process, because what "
        "it trains last "
        "depends on its first results; drop mpirun");
  }
  return absl::OkStatus();
}

// Trains the runs that have not ended. Sets `lock` to the lock on the directory. If the first seeds
// choose, the plan then skips the runs that were not chosen.
absl::Status TrainInDirectory(const StudyRequest& request, StudyHost* host, HostRuntime* runtime,
                              StudyPlan* plan, std::optional<StudyLock>* lock) {
  PLUMB_RETURN_IF_ERROR(CheckRequest(request, *plan));
  if (request.is_shared()) {
    PLUMB_RETURN_IF_ERROR(CheckRanksAgree(request, *plan, host, runtime));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::optional<RunStore> store, OpenStore(request, host));
  PLUMB_ASSIGN_OR_RETURN(const StudyRequirements requirements,
                         ComputeRequirements(*plan, runtime->threads()));
  PLUMB_RETURN_IF_ERROR(CheckFits(requirements, *plan));
  PLUMB_ASSIGN_OR_RETURN(StudyLock opened, OpenDirectory(request.out));
  lock->emplace(std::move(opened));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> removed,
                         ClaimDirectory(*plan, request.overwrite));
  for (const std::string& run : removed) {
    host->Note(absl::StrCat(run, ": had other inputs, and is trained again"));
  }
  std::vector<size_t> best_cells;
  while (plan->chooses() || !plan->range.empty()) {
    const size_t no_cell = plan->cells.size();
    plan->SkipExcept(std::vector<size_t>(plan->models.size(), no_cell));
    PLUMB_RETURN_IF_ERROR(TrainPhase(request, *plan, store, host, runtime));
    PLUMB_ASSIGN_OR_RETURN(best_cells, ChooseCells(*plan));
    if (plan->range.empty() || !plan->ExtendTried(best_cells)) break;
  }
  if (!best_cells.empty()) plan->SkipExcept(best_cells);
  PLUMB_RETURN_IF_ERROR(TrainPhase(request, *plan, store, host, runtime));
  plan->DropUntriedCells();
  return absl::OkStatus();
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
          absl::StrCat(path, ": cannot be created; set TMPDIR to a directory that can be written"));
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
                                           StudyPlan plan, StudyResults results, StudyHost* host,
                                           HostRuntime* runtime) {
  if (const size_t kinds = results.Products().size(); kinds > 1) {
    host->Warn(absl::StrCat("the runs were trained with ", kinds,
                            " kinds of matrix products, which round differently; the report lists "
                            "them"));
  }
  StudyProvenance provenance;
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

}  // namespace

StudyTimer::StudyTimer() : begin(std::chrono::steady_clock::now()), started(UtcNow()) {}

absl::StatusOr<StudyPlan> PlanStudy(const StudyRequest& request, StudyHost* host,
                                    HostRuntime* runtime) {
  absl::StatusOr<StudyPlan> plan = MakePlan(request.study, request.out, runtime);
  for (const std::string& warning : runtime->TakeWarnings()) host->Warn(warning);
  if (!plan.ok()) return plan;
  for (const std::string& warning : plan->warnings) host->Warn(warning);
  return plan;
}

absl::StatusOr<StudyOutcome> RunStudy(const StudyRequest& request, const StudyTimer& timer,
                                      StudyHost* host, HostRuntime* runtime) {
  PLUMB_RETURN_IF_ERROR(CheckIsNoRun(request.out));
  PLUMB_ASSIGN_OR_RETURN(StudyPlan plan, PlanStudy(request, host, runtime));
  std::optional<StudyLock> lock;
  PLUMB_RETURN_IF_ERROR(TrainInDirectory(request, host, runtime, &plan, &lock));
  PLUMB_ASSIGN_OR_RETURN(StudyResults results, CollectResults(plan));
  return ConcludeStudy(request, timer, std::move(plan), std::move(results), host, runtime);
}

absl::StatusOr<StudyOutcome> ReportRuns(const StudyRequest& request,
                                        const std::vector<std::string>& paths,
                                        const StudyTimer& timer, StudyHost* host,
                                        HostRuntime* runtime) {
  for (const char* name : {"model.pbtxt", "study.pbtxt"}) {
    if (!FileExists(JoinPath(request.out, name))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--out ", request.out, ": is a run or a study; name a directory for the report alone"));
  }
  PLUMB_ASSIGN_OR_RETURN(FoundRuns found, FindRuns(paths, runtime));
  StudyPlan& plan = found.plan;
  for (const std::string& warning : runtime->TakeWarnings()) host->Warn(warning);
  for (const std::string& warning : plan.warnings) host->Warn(warning);
  plan.out = request.out;
  plan.study.set_title(request.study.fields.title());
  StudyResults results = EvaluateStudy(plan, std::move(found.records));
  PLUMB_RETURN_IF_ERROR(CheckChosen(plan, results));
  PLUMB_ASSIGN_OR_RETURN(const StudyLock lock, StudyLock::Acquire(request.out));
  return ConcludeStudy(request, timer, std::move(plan), std::move(results), host, runtime);
}

absl::Status FollowStudy(const StudyRequest& request, StudyHost* host, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> directory,
                         TemporaryDirectory::Make());
  PLUMB_ASSIGN_OR_RETURN(const StudyPlan plan, MakePlan(request.study, directory->path(), runtime));
  PLUMB_RETURN_IF_ERROR(CheckRequest(request, plan));
  PLUMB_RETURN_IF_ERROR(CheckRanksAgree(request, plan, host, runtime));
  int64_t left = 0;
  PLUMB_RETURN_IF_ERROR(Broadcast(request.launch->ranks(), 0, &left, sizeof(left)));
  const StudyDivision division = DivisionOfRank(request, plan, left, runtime->threads());
  return TrainRuns(plan, division, GetRanks(request), host);
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

}  // namespace plumb
