// SPDX-License-Identifier: Apache-2.0
// Job of which this process is a rank: found if a launcher (mpirun, srun) has started the process,
// otherwise a job of one rank. All ranks end together: an error of any rank is printed once, with
// rank and host, ends the job by MPI_Abort, and is the exit code of all ranks. If a rank is killed,
// the launcher ends the job.
//
//   PLUMB_ASSIGN_OR_RETURN(const auto launch, Launch::Find(options));
//   const absl::StatusOr<int> code = Work(launch->ranks());
//   return launch->End(code.status(), code.ok() ? *code : ToExitCode(code.status()));
#ifndef PLUMB_RUNTIME_RANKS_LAUNCH_H_
#define PLUMB_RUNTIME_RANKS_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

struct LaunchOptions {
  // Path of libplumb-mpi.so. The environment variable PLUMB_MPI_LIBRARY takes precedence.
  std::string mpi_library;
  // --rank-grace: time after which a rank that others wait for is reported, and after which the job
  // ends if some processes have not joined it. 0: neither.
  double grace_seconds = 60;
  // Callbacks for the error that ends the job and for notes on ranks that others wait for. Called
  // from any thread. null: messages are discarded.
  std::function<void(const std::string&)> print_error, print_note;
};

// Handle of the job. Thread-compatible.
class Launch {
 public:
  // Returns true if an MPI launcher has started this process. LaunchedRank returns the rank that
  // the launcher assigned, 0 without a launcher.
  static bool IsLaunched();
  static int LaunchedRank();

  // Joins the job. Collective. If some process has not joined within the grace time, prints an
  // error and exits with code 1. Errors: kUnimplemented if there is a launcher but no
  // libplumb-mpi.so.
  static absl::StatusOr<std::unique_ptr<Launch>> Find(const LaunchOptions& options);
  // Creates a job of these ranks for tests. An error ends the job but no process.
  static absl::StatusOr<std::unique_ptr<Launch>> Of(std::unique_ptr<Communicator> ranks,
                                                    const LaunchOptions& options);
  // Aborts the job unless End was called or it has one rank.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int rank() const;
  int size() const;
  bool is_first() const { return rank() == 0; }   // the rank that prints and writes
  const std::vector<std::string>& hosts() const;  // indexed by rank
  // Returns the default of RuntimeOptions::threads: 0 (plumb's default) if this is the only rank on
  // its machine or the launcher has bound the ranks of a machine to separate processors; otherwise
  // an equal share of the machine's processors.
  int default_threads() const;
  // Returns the communicator, which is never null and waits without busy polling.
  Communicator* ranks();
  // Returns the same for plumb_trainer_options.communicator, or null if there is one rank.
  const plumb_communicator* communicator() const;

  // Returns true if `mine` is true on any rank, for example after a signal. Collective.
  absl::StatusOr<bool> Any(bool mine);

  // Ends the job for this rank; must be the last call. With status OK: waits for all ranks and
  // returns the first nonzero exit code in the order of ranks, or 0. An error of any rank ends all
  // ranks. Rank 0 prints its own error or, as soon as it waits for another rank, that of the failed
  // rank: "rank 2 on host b: ...". If rank 0 does not take the error within 10 s, the failed rank
  // prints it. Returns the exit code of this process, or ends the process.
  int End(const absl::Status& status, int exit_code);

 private:
  class Impl;
  explicit Launch(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Returns this process's rank among those that the launcher started, using the libplumb-mpi.so at
// `file`. Destroying the communicator finalizes MPI, which is collective. Collective; at most once.
// Errors: kNotFound if the library, or the MPI that it is linked with, cannot be loaded;
// kUnavailable if MPI cannot be initialized; kUnimplemented if MPI allows only one thread.
absl::StatusOr<std::unique_ptr<Communicator>> JoinByMpi(const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_LAUNCH_H_
