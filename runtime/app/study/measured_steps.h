// SPDX-License-Identifier: Apache-2.0
// Measurement of how many steps of one group take as long as the steps of another.
#ifndef PLUMB_RUNTIME_APP_STUDY_MEASURED_STEPS_H_
#define PLUMB_RUNTIME_APP_STUDY_MEASURED_STEPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/study/plan.h"

namespace plumb {

// Returns the number of steps of `group` that take as long as all steps of `reference`, at least 1.
// Trains both in turns, without writing files, so that a change of the machine's speed meets both.
// Another measurement differs by some percent. Errors: those of TrainRun::Open and Step.
absl::StatusOr<int64_t> MeasuredSteps(const StudyPlan& plan, size_t reference, size_t group,
                                      HostRuntime* runtime);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_MEASURED_STEPS_H_
