// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/base/memory.h"
#include "runtime/client/plumb_api.h"
#include "runtime/ranks/collectives.h"

namespace plumb::cli {
namespace {

// Joins the job that this process is a rank of. Collective; to be called before anything that may
// fail on one rank only.
absl::StatusOr<std::unique_ptr<Launch>> JoinRanks(const RankOptions& options) {
  LaunchOptions launch_options;
  launch_options.grace_seconds = options.grace_seconds;
  launch_options.mpi_library =
      absl::StrCat(InstallPrefix(), "/" PLUMB_LIB_DIR "/plumb/libplumb-mpi.so");
  launch_options.print_error = [](const std::string& text) { PrintError(text); };
  launch_options.print_note = [](const std::string& text) {
    PrintNote(absl::StrCat("note: ", text));
  };
  absl::StatusOr<std::unique_ptr<Launch>> launch = Launch::Find(launch_options);
  if (launch.ok() || Launch::LaunchedRank() == 0) return launch;
  return absl::Status(launch.status().code(), absl::StrCat("rank ", Launch::LaunchedRank(), ": ",
                                                           launch.status().message()));
}

// Ends `launch` with the result of the command, through Launch::End, which prints the error.
// Returns the exit code.
int EndRanks(Launch* launch, const absl::StatusOr<int>& exit_code) {
  if (exit_code.ok()) return launch->End(absl::OkStatus(), *exit_code);
  const absl::Status& status = exit_code.status();
  return launch->End(IsReaderGone(status) ? absl::Status(status.code(), "") : status,
                     ToExitCode(status));
}

// Returns `invocation` with this rank's number of threads if neither --threads nor OMP_NUM_THREADS
// sets it, because several ranks of a machine share its processors.
Invocation ForRank(const Invocation& invocation, const Launch& launch) {
  Invocation mine = invocation;
  // OMP_NUM_THREADS counts as a setting of the user, too.
  if (mine.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    mine.threads = launch.default_threads();
  }
  return mine;
}

// Fails on all ranks unless all run the same command of the same version of plumb; otherwise some
// would wait for messages that never come. `command`: the name and the flags that change what is
// sent, such as "train --resume". Collective.
absl::Status CheckSameCommand(Launch* launch, const std::string& command) {
  const std::vector<Fact> facts = {{"version of plumb", api::Version()}, {"command", command}};
  const absl::Status same = AllAgree(launch->ranks(), facts);
  // The error is in the command line, not in a plugin.
  return absl::IsFailedPrecondition(same) ? absl::InvalidArgumentError(same.message()) : same;
}

}  // namespace

void AddRankOptions(CLI::App* app, RankOptions* options) {
  AddDouble(app, "--rank-grace", &options->grace_seconds, 0, 1e9,
            "Seconds to wait for a rank before reporting it, and for all ranks to join before the "
            "job fails, under mpirun. 0: no limit. Default: 60");
}

int EndBeforeJoining(const absl::Status& status) {
  const absl::StatusOr<std::unique_ptr<Launch>> launch = JoinRanks(RankOptions());
  if (launch.ok()) return EndRanks(launch->get(), status);
  if (!status.message().empty()) PrintError(status.message());
  return ToExitCode(status);
}

absl::StatusOr<int> RunRanks(
    const RankOptions& options, const std::string& command, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work) {
  absl::StatusOr<std::unique_ptr<Launch>> launch = JoinRanks(options);
  if (!launch.ok()) return launch.status();
  const auto call = [&]() -> absl::StatusOr<int> {
    try {
      if (absl::Status same = CheckSameCommand(launch->get(), command); !same.ok()) return same;
      return work(launch->get(), ForRank(invocation, **launch));
    } catch (const std::bad_alloc&) {
      if ((*launch)->size() == 1) throw;
      return absl::ResourceExhaustedError(absl::StrCat("out of memory; ", MemoryLimitText()));
    }
  };
  const absl::StatusOr<int> code = call();
  // A single process ends like any other command.
  return (*launch)->size() == 1 ? code : EndRanks(launch->get(), code);
}

}  // namespace plumb::cli
