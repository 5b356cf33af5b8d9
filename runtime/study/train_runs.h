// SPDX-License-Identifier: Apache-2.0
// TrainRuns: trains the runs of a plan, several at a time, each on its own threads.
#ifndef PLUMB_RUNTIME_STUDY_TRAIN_RUNS_H_
#define PLUMB_RUNTIME_STUDY_TRAIN_RUNS_H_

#include "absl/status/status.h"
#include "runtime/ranks/communicator.h"
#include "runtime/study/plan.h"
#include "runtime/study/study_host.h"

namespace plumb {

// Trains every run that has not ended, from its last checkpoint if it has one. `ranks`: the ranks
// that share the study, all of which call this function; null for one process. On rank 0 the plan's
// directory is the study's; on the others it is a scratch directory, empty at the end. If it
// returns OK, every run that the plan does not skip has a result (run_record.h); a run that
// diverges has one too. Results do not depend on the division, the ranks, or how often training was
// stopped. Errors: kCancelled, on rank 0, if any rank was interrupted; interrupted runs then have a
// checkpoint. Any other error stops all runs.
absl::Status TrainRuns(const StudyPlan& plan, StudyDivision division, Communicator* ranks,
                       StudyHost* host);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_TRAIN_RUNS_H_
