// compare --dry-run.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/compare/requirements.h"
#include "cli/compare/tables.h"
#include "cli/dry_run.h"
#include "cli/study_run.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

// What the steps of a group take, in seconds.
struct GroupTime {
  StepTime step;
  double run = 0;  // all steps of one
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
                  Bytes(needs.memory), " of ", Bytes(needs.room.available), " available (",
                  needs.room.limited_by, ")\ndisk    ", Bytes(needs.disk));
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
          {"memory_available", needs.room.available},
          {"memory_limited_by", needs.room.limited_by},
          {"disk", {{"total", needs.disk}, {"available", needs.free_disk}}}};
}

}  // namespace

absl::Status PrintStudyDryRun(const StudyRequest& request, bool json, const Invocation& invocation,
                              HostRuntime* runtime) {
  absl::StatusOr<Plan> planned = MakePlan(request.study, request.out, runtime);
  if (!request.quiet) PrintWarnings(runtime);
  PLUMB_ASSIGN_OR_RETURN(Plan plan, std::move(planned));
  plan.shard = request.shard;
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
