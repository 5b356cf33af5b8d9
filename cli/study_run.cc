// SPDX-License-Identifier: Apache-2.0
#include "cli/study_run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/figures.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/report/tables.h"

namespace plumb::cli {
namespace {

// Seconds of a group's steps.
struct GroupTime {
  StepTime step;
  double run = 0;  // all steps of one run
};

absl::StatusOr<std::vector<GroupTime>> TimeGroups(const StudyPlan& plan, bool quiet,
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

std::string ToText(const StudyPlan& plan, const StudyRequirements& needs,
                   const std::vector<GroupTime>& times, double seconds) {
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

Json ToJson(const StudyPlan& plan, const StudyRequirements& needs,
            const std::vector<GroupTime>& times, double seconds) {
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

absl::StatusOr<std::unique_ptr<HostRuntime>> StudyConsole::CreateRuntime(int threads) {
  Invocation invocation = invocation_;
  invocation.threads = threads;
  return invocation.CreateRuntime();
}

void StudyConsole::BeginTraining(const StudyPlan& plan, const std::vector<RunState>& states,
                                 bool leads) {
  interrupts_.emplace("the training steps of the runs, or their checkpoints");
  progress_.emplace(&plan, &states, quiet_ || !leads);
}

void StudyConsole::EndTraining() {
  progress_->Update(true);
  progress_.reset();
  interrupts_.reset();
}

void StudyConsole::ShowProgress() { progress_->Update(false); }

bool StudyConsole::IsInterrupted() {
  // Informs the user at once, because a launcher gives its ranks little time (mpirun one second).
  if (interrupts_->requested() && request_.is_shared() && request_.leads()) PrintInterrupted();
  return interrupts_->requested();
}

void StudyConsole::Note(absl::string_view message) {
  if (quiet_) return;
  if (progress_) {
    progress_->Note(message);
  } else {
    PrintNote(message);
  }
}

absl::StatusOr<int> StudyConsole::ExitCode(const absl::Status& status) {
  if (!absl::IsCancelled(status)) return ExitOk(status);
  PrintInterrupted();
  return kExitInterrupted;
}

void StudyConsole::PrintInterrupted() {
  if (quiet_ || has_told_) return;
  has_told_ = true;
  PrintNote(absl::StrCat("interrupted; the same command resumes it:\n  ", request_.command));
}

absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, bool quiet,
                              StudyConsole* console, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(StudyPlan plan, PlanStudy(request, console, runtime));
  plan.DropUntriedCells();
  PLUMB_ASSIGN_OR_RETURN(const StudyRequirements needs,
                         ComputeRequirements(plan, runtime->threads()));
  PLUMB_RETURN_IF_ERROR(CheckFits(needs, plan));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> worker,
                         console->CreateRuntime(needs.division.threads));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<GroupTime> times, TimeGroups(plan, quiet, worker.get()));
  double seconds = 0;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.Has(i)) seconds += times[plan.runs[i].group].run;
  }
  if (needs.runs > 0) {
    seconds *= static_cast<double>(needs.runs - needs.ended) / static_cast<double>(needs.runs);
  }
  seconds /= needs.division.workers;
  return json ? PrintJson(ToJson(plan, needs, times, seconds))
              : PrintResult(ToText(plan, needs, times, seconds));
}

}  // namespace plumb::cli
