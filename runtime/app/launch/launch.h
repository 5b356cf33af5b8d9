// SPDX-License-Identifier: Apache-2.0
// The job that this process is a rank of: found if a launcher (mpirun, srun) has started it, else a
// job of one rank. All ranks end together: an error of any of them is printed once, with rank and
// host, ends the job by MPI_Abort, and is the exit code of all. A rank that is killed ends the job
// through the launcher.
//
//   PLUMB_ASSIGN_OR_RETURN(const auto launch, Launch::Find(options));
//   const absl::StatusOr<int> code = Work(launch->ranks());
//   return launch->End(code.status(), code.ok() ? *code : ExitCodeOf(code.status()));
#ifndef PLUMB_RUNTIME_APP_LAUNCH_LAUNCH_H_
#define PLUMB_RUNTIME_APP_LAUNCH_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/app/host_runtime.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

struct LaunchOptions {
  // libplumb-mpi.so: the PLUMB_MPI_LIBRARY of the environment, if there is one, else this.
  std::string mpi_library;
  // --rank-grace: time after which a rank that others wait for is named, and after which a job that
  // not all processes have joined ends. 0: neither.
  double grace_seconds = 60;
  // Called with the error that ends the job, and with notes on ranks that others wait for. From any
  // thread. null: messages are discarded.
  std::function<void(const std::string&)> print_error, print_note;
};

// What a rank says of itself.
struct RankFacts {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string processor;   // "Intel(R) Xeon(R) ... (GenuineIntel 6-143)"
  std::string isa;         // of plumb's kernels: "AVX3_SPR"
  std::string matmul;      // HostRuntime::matmul; equal texts of equal processors: equal rounding
  int64_t threads = 0;     // of a call
  std::string processors;  // that it may run on: "0-3,8"
};
// Between two ranks: ranks/links.h.
struct RankLink {
  int a = 0, b = 0;
  double latency_seconds = 0, bytes_per_second = 0;
};

// Of this process. Loads oneDNN.
RankFacts FactsOf(const HostRuntime& runtime);

// Thread-compatible: one thread at a time.
class Launch {
 public:
  // Returns true if an MPI launcher has started this process; and the rank that it has given it, 0
  // without one.
  static bool IsLaunched();
  static int LaunchedRank();

  // All ranks call it. If not all have done so within the grace time, this process prints an error
  // and exits with code 1. Errors: kUnimplemented where there is a launcher and no libplumb-mpi.so.
  static absl::StatusOr<std::unique_ptr<Launch>> Find(const LaunchOptions& options);
  // The job of these ranks, for tests: what ends it ends no process.
  static absl::StatusOr<std::unique_ptr<Launch>> Of(std::unique_ptr<Communicator> ranks,
                                                    const LaunchOptions& options);
  // Without End: the job is aborted, unless it has one rank.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int rank() const;
  int size() const;
  bool is_first() const { return rank() == 0; }   // who prints and writes
  const std::vector<std::string>& hosts() const;  // by rank
  // RuntimeOptions::threads where the user said none: 0 (plumb's default) for one rank a
  // machine, or where the launcher has bound the ranks of a machine to processors of their own;
  // else an equal part of this machine's processors.
  int default_threads() const;
  // Never null. Waits without burning a processor.
  Communicator* ranks();
  // The same for plumb_trainer_options.communicator; null where there is one rank.
  const plumb_communicator* communicator() const;

  // Everyone's, everywhere, in the order of ranks. All ranks call it.
  absl::StatusOr<std::vector<RankFacts>> AllFacts(const RankFacts& mine);
  // How fast messages are: of one pair of ranks on each host, and between hosts. All ranks call it,
  // while they have nothing else to do.
  absl::StatusOr<std::vector<RankLink>> MeasureAllLinks();
  // Whether `mine` is true on any rank: a signal has come, say. All ranks call it.
  absl::StatusOr<bool> Any(bool mine);

  // Ends the job for this rank; the last call. OK: waits for all ranks and returns the first exit
  // code, in the order of ranks, that is not 0. An error of any rank ends all of them: rank 0
  // prints its own, or, as soon as it waits for another, that of the rank that has failed, "rank 2
  // on host b:
  // ...". A rank for which rank 0 has no time within 10 s prints its error itself. Returns the exit
  // code of this process, or ends it.
  int End(const absl::Status& status, int exit_code);

 private:
  class Impl;
  explicit Launch(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_LAUNCH_LAUNCH_H_
