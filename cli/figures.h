// SPDX-License-Identifier: Apache-2.0
// Figures that commands measure or predict, and their text: the passes of `plumb bench`, profiles,
// and the memory and time of a run. Values.
#ifndef PLUMB_CLI_FIGURES_H_
#define PLUMB_CLI_FIGURES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output.h"
#include "cli/series.h"
#include "runtime/client/model.h"
#include "runtime/client/profile.h"
#include "runtime/train/train_run.h"

namespace plumb::cli {

// One pass of a model, timed in rounds, each next to a measurement of the machine's peak.
struct PassFigures {
  std::string name;   // "training", "prompt", "decode"
  std::string shape;  // "4 x 64"
  std::string dtype;
  Series seconds;                  // per step, prompt, or decoding step of all sequences
  Series tokens_per_second;        // over all sequences
  Series rate;                     // FLOP/s; for decoding, bytes of weights per second
  std::string unit;                // unit of `rate`, in billions: "GFLOP/s"
  Series machine;                  // the machine's peak, in the unit of `rate`
  Series share;                    // rate / machine, per round; empty if the machine has no peak
  int64_t peak_memory = 0;         // bytes; 0: unknown
  std::optional<Profile> profile;  // profile of further steps, with --profile
  std::string problem;             // reason why there are no figures, or ""
};

Json ToJson(const PassFigures& figures);
std::string ToTable(const std::vector<PassFigures>& passes);

// Returns the figures of a mean step; a dash if there is nothing to count.
std::string ProfileTable(const Profile& profile);
Json ProfileJson(const Profile& profile);

// Time of the fastest of some steps; the first step of a run compiles and touches its memory.
struct StepTime {
  double seconds = 0;
  int64_t tokens = 0;  // targets of that step
  int64_t steps = 0;   // number of steps taken
};

// Takes at least one and at most five steps of a run, and starts none after two seconds or after
// one that diverged.
absl::StatusOr<StepTime> TimeStep(TrainRun* run);

Json MemoryJson(const TrainingMemory& memory);
std::string MemoryTable(const TrainingMemory& memory);

std::string DryRunText(const TrainInfo& info, const StepTime& time);
Json DryRunJson(const TrainInfo& info, const StepTime& time);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_FIGURES_H_
