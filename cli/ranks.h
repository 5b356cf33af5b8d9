// SPDX-License-Identifier: Apache-2.0
// Commands that run as several ranks, started by mpirun or srun: runtime/ranks/launch.h with
// this program's options, paths and exit codes.
#ifndef PLUMB_CLI_RANKS_H_
#define PLUMB_CLI_RANKS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command.h"
#include "runtime/ranks/launch.h"

namespace plumb::cli {

struct RankOptions {
  double grace_seconds = 60;
};

// Adds --rank-grace.
void AddRankOptions(CLI::App* app, RankOptions* options);

// Ends a process that failed before it joined its job, for example in the command line: joins the
// job, so that an error of all ranks is printed once. Returns the exit code.
int EndBeforeJoining(const absl::Status& status);

// Runs a whole command: joins the job, checks that all ranks run `command`, calls `work` with the
// job and this rank's invocation, and ends the job. Running out of memory on one rank becomes an
// ordinary error of the job.
absl::StatusOr<int> RunRanks(
    const RankOptions& options, const std::string& command, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_RANKS_H_
