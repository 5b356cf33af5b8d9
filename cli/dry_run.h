// --dry-run: what a run would take of memory, time and the disk.
#ifndef PLUMB_CLI_DRY_RUN_H_
#define PLUMB_CLI_DRY_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "runtime/tools/model.h"
#include "runtime/tools/train.h"

namespace plumb::cli {

// The fastest of some steps; the first of a run compiles, and touches its memory.
struct StepTime {
  double seconds = 0;
  int64_t tokens = 0;  // targets of that step
  int64_t steps = 0;   // that were taken
};

// Takes up to five steps of a run, or as many as begin within two seconds, at least one.
absl::StatusOr<StepTime> TimeStep(TrainRun* run);

Json MemoryJson(const TrainingMemory& memory);
std::string MemoryTable(const TrainingMemory& memory);

std::string DryRunText(const TrainInfo& info, const StepTime& time);
Json DryRunJson(const TrainInfo& info, const StepTime& time);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_DRY_RUN_H_
