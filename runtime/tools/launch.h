// The job that this process is a rank of: found where a launcher (mpirun, srun) has started it,
// else a job of one. All ranks end together: an error of any of them is printed once, by rank 0,
// with rank and host, and is the exit code of all; a rank that has died or hangs is named after a
// grace time.
//
//   PLUMB_ASSIGN_OR_RETURN(const auto launch, Launch::Find(options));
//   const absl::StatusOr<int> code = Work(launch->ranks());
//   return launch->End(code.status(), code.ok() ? *code : ExitCodeOf(code.status()));
#ifndef PLUMB_RUNTIME_TOOLS_LAUNCH_H_
#define PLUMB_RUNTIME_TOOLS_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/ranks/communicator.h"
#include "runtime/tools/host_runtime.h"

namespace plumb {

struct LaunchOptions {
  // libplumb-mpi.so: the PLUMB_MPI_LIBRARY of the environment, if there is one, else this.
  std::string mpi_library;
  // A rank that has not been heard of for so long is taken for dead: --rank-grace. What it computes
  // in the meantime does not matter: a thread of its own answers. 0: nobody is ever taken for dead.
  double grace_seconds = 60;
  // The error that ends the job (by rank 0, or by another when it is rank 0 that is dead), and, by
  // rank 0, that ranks have waited for one for longer than the grace time. From any thread. null:
  // they are not told.
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
  // Whether the environment is that of a launcher's process, and which rank it says that this is: 0
  // where there is none. Before Find, and where it fails: what all ranks would print, 0 prints.
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
  // HostRuntimeOptions::threads where the user said none: 0 (plumb's default) for one rank a
  // machine, or where the launcher has bound the ranks of a machine to processors of their own;
  // else an equal part of this machine's processors.
  int default_threads() const;
  // Never null. Waits without burning a processor, and names whom it waits for.
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

  // What this rank comes to, the last call. All OK: waits for all ranks, and is the first exit
  // code, in the order of ranks, that is not 0. An error of any rank, of this or, while it waits,
  // of another, is the end of all: rank 0 prints it, "rank 2 on host b: ..." (without the rank
  // where all have the same), and all exit with that rank's code. Returns the exit code of this
  // process, or ends it.
  int End(const absl::Status& status, int exit_code);

 private:
  class Impl;
  explicit Launch(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_LAUNCH_H_
