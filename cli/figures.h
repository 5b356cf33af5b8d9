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
#include "runtime/app/model.h"
#include "runtime/app/profile.h"
#include "runtime/app/train/train.h"

namespace plumb::cli {

// Figures of rounds, in the order in which they were taken.
class Series {
 public:
  void Add(double value) { values_.push_back(value); }
  void Add(const Series& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  bool empty() const { return values_.empty(); }
  // By linear interpolation between the sorted values; 0 of none. q in [0, 1].
  double Quantile(double q) const;
  double Median() const { return Quantile(0.5); }
  Json ToJson() const;  // {"median", "p10", "p90"}

 private:
  std::vector<double> values_;
};

// One pass of a model, timed in rounds, each beside a yardstick of the machine.
struct PassFigures {
  std::string name;   // "training", "prompt", "decode"
  std::string shape;  // "4 x 64"
  std::string dtype;
  Series seconds;                  // of a step, a prompt, a token of every sequence
  Series tokens_per_second;        // of all sequences
  Series rate;                     // FLOP/s; for decoding bytes of weights a second
  std::string unit;                // of the rate, in billions: "GFLOP/s"
  Series machine;                  // the yardstick, in the unit of the rate
  Series share;                    // rate over machine, round by round; empty without a yardstick
  int64_t peak_memory = 0;         // bytes; 0: not known
  std::optional<Profile> profile;  // of further steps, with --profile
  std::string problem;             // why there are no figures; "" if there are
};

Json ToJson(const PassFigures& figures);
std::string ToTable(const std::vector<PassFigures>& passes);

// Figures of a mean step; a dash where there is nothing to count.
std::string ProfileTable(const Profile& profile);
Json ProfileJson(const Profile& profile);

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

#endif  // PLUMB_CLI_FIGURES_H_
