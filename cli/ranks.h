// SPDX-License-Identifier: Apache-2.0
// Commands that run as several ranks, where mpirun or srun has started them:
// runtime/app/launch/launch.h with this program's options, paths and exit codes.
#ifndef PLUMB_CLI_RANKS_H_
#define PLUMB_CLI_RANKS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command.h"
#include "runtime/app/launch/launch.h"

namespace plumb::cli {

struct RankOptions {
  double grace_seconds = 60;
};

// --rank-grace.
void AddRankOptions(CLI::App* app, RankOptions* options);

// The job that this process is a rank of. All ranks call it, before anything that may fail for one
// of them alone.
absl::StatusOr<std::unique_ptr<Launch>> JoinRanks(const RankOptions& options);

// Ends `launch` with the result of the command: Launch::End, which prints the error. Returns the
// exit code.
int EndRanks(Launch* launch, const absl::StatusOr<int>& exit_code);

// Ends a process with an error, of the command line, say, before it has joined its job: joins it,
// so that an error of all ranks is printed once. Returns the exit code.
int EndBeforeJoining(const absl::Status& status);

// `invocation` with the threads that are this rank's where --threads does not say: several ranks of
// a machine share its processors.
Invocation ForRank(const Invocation& invocation, const Launch& launch);

// Fails, on all ranks, unless all run the same command of the same version of plumb: others would
// wait for messages that never come. `command`: its name and the flags that change what is sent,
// "train --resume". All ranks call it.
absl::Status CheckSameCommand(Launch* launch, const std::string& command);

// Runs a whole command: joins the job, checks that all ranks run `command`, calls `work` with the
// job and with this rank's invocation, and ends the job. Memory that is short on one rank is an
// error as any other.
absl::StatusOr<int> RunRanks(
    const RankOptions& options, const std::string& command, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_RANKS_H_
