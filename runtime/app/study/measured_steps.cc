// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/measured_steps.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "runtime/app/train/train.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr int kTurns = 8;
constexpr double kSecondsOfTurn = 0.05;  // a turn takes at least one step

// Time of some steps of a run.
struct Timed {
  std::unique_ptr<TrainRun> run;
  double seconds = 0;
  int64_t steps = 0;
};

absl::Status TakeTurn(Timed* timed) {
  double seconds = 0;
  while (!timed->run->done() && seconds < kSecondsOfTurn) {
    PLUMB_ASSIGN_OR_RETURN(const StepReport report, timed->run->Step());
    seconds += report.seconds;
    ++timed->steps;
  }
  timed->seconds += seconds;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> MeasuredSteps(const StudyPlan& plan, size_t reference, size_t group,
                                      HostRuntime* runtime) {
  Timed timed[2];
  for (size_t i = 0; i < 2; ++i) {
    PLUMB_ASSIGN_OR_RETURN(timed[i].run,
                           OpenWithoutFiles(plan, i == 0 ? reference : group, runtime));
    // The first step compiles and touches the memory of the run.
    if (!timed[i].run->done()) PLUMB_RETURN_IF_ERROR(timed[i].run->Step().status());
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Timed& one : timed) PLUMB_RETURN_IF_ERROR(TakeTurn(&one));
  }
  const auto steps = static_cast<double>(plan.groups[reference].training.max_steps);
  if (timed[0].steps == 0 || timed[1].steps == 0 || !(timed[1].seconds > 0)) {
    return plan.groups[reference].training.max_steps;  // runs of one step cannot be divided
  }
  const double ratio = timed[0].seconds / static_cast<double>(timed[0].steps) /
                       (timed[1].seconds / static_cast<double>(timed[1].steps));
  return std::clamp<int64_t>(std::llround(steps * ratio), 1, INT32_MAX);
}

}  // namespace plumb
