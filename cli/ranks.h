// What the commands that several processes run as one job (mpirun -n 4 plumb train ...) have in
// common: their options, and the job.
#ifndef PLUMB_CLI_RANKS_H_
#define PLUMB_CLI_RANKS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "runtime/tools/launch.h"

namespace plumb::cli {

struct RankFlags {
  double grace = 60;
};

// --rank-grace.
void AddRankOptions(CLI::App* app, RankFlags* flags);

// The job that a launcher started this process as a rank of, else one of one rank. Calls `work`
// with it, and ends the job: an error of any rank is printed once, by rank 0, and is the exit code
// of all. `invocation`, which `work` gets, has this rank's share of its machine's threads unless
// --threads is said.
absl::StatusOr<int> RunRanks(
    const RankFlags& flags, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_RANKS_H_
