// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/host_communicator.h"
#include "runtime/ranks/mpi/plumb_mpi.h"
#include "runtime/ranks/stall_watch.h"

namespace plumb {
namespace {

// Variables set by Open MPI, PMIx (Slurm, PRRTE) and PMI (MPICH, Intel MPI, Slurm) for the
// processes that they start. SLURM_PROCID alone proves nothing, since batch scripts have it too.
constexpr const char* kRankVariables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
constexpr const char* kSizeVariables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

// Time for rank 0 to receive another rank's error, since it computes between two messages.
constexpr double kReportSeconds = 10;
// Time for MPI to end this process, since it may wait for ranks that it cannot reach.
constexpr unsigned kAbortSeconds = 10;

std::string MpiLibrary(const LaunchOptions& options) {
  const char* const named = std::getenv("PLUMB_MPI_LIBRARY");
  return named != nullptr ? named : options.mpi_library;
}

// Ends this process with an error unless it is destroyed within the grace time, after all processes
// of the launcher have joined. MPI itself would wait for them forever, even if one runs another
// command or a program without MPI.
class JoinDeadline {
 public:
  explicit JoinDeadline(const LaunchOptions& options) {
    if (options.grace_seconds <= 0) return;
    // Rank 0 reports; if it is the one that has not joined, another rank does so later.
    const double seconds = options.grace_seconds + Launch::LaunchedRank();
    thread_ = std::thread([this, seconds, print = options.print_error] {
      std::unique_lock<std::mutex> lock(mutex_);
      const std::chrono::duration<double> time(seconds);
      if (changed_.wait_for(lock, time, [this] { return has_joined_; })) return;
      if (print != nullptr) {
        print(absl::StrCat("not all processes of the launcher have joined the job in ", seconds,
                           " s (--rank-grace): one has ended, runs another program or another "
                           "command, or is very slow to start; give all the same command"));
      }
      _exit(1);
    });
  }
  ~JoinDeadline() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      has_joined_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  JoinDeadline(const JoinDeadline&) = delete;
  JoinDeadline& operator=(const JoinDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_joined_ = false;
  std::thread thread_;
};

// Owns a plumb_communicator that libplumb-mpi.so filled.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(const plumb_communicator& host, decltype(&plumb_mpi_release) release,
                  std::unique_ptr<Communicator> ranks)
      : host_(host), release_(release), ranks_(std::move(ranks)) {}
  ~MpiCommunicator() override {
    ranks_.reset();
    release_(&host_);
  }

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::string host() const override { return ranks_->host(); }
  absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data, size_t bytes) override {
    return ranks_->StartSend(to, tag, data, bytes);
  }
  absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data, size_t bytes) override {
    return ranks_->StartReceive(from, tag, data, bytes);
  }
  absl::StatusOr<bool> Test(Transfer* transfer) override { return ranks_->Test(transfer); }
  absl::Status Wait(Transfer* transfer) override { return ranks_->Wait(transfer); }
  absl::StatusOr<std::optional<Message>> Probe(int tag) override { return ranks_->Probe(tag); }
  absl::Status Barrier() override { return ranks_->Barrier(); }
  void Abort(int code) override { ranks_->Abort(code); }

 private:
  plumb_communicator host_;
  const decltype(&plumb_mpi_release) release_;
  std::unique_ptr<Communicator> ranks_;
};

template <class Function>
bool FindFunction(void* library, const char* name, Function** function) {
  void* const address = dlsym(library, name);
  static_assert(sizeof(address) == sizeof(*function));
  std::memcpy(function, &address, sizeof(address));
  return address != nullptr;
}

absl::Status NotLoaded(const std::string& file) {
  const char* const why = dlerror();
  return absl::NotFoundError(why != nullptr ? std::string(why)
                                            : absl::StrCat(file, ": could not be loaded"));
}

}  // namespace

class Launch::Impl {
 public:
  // `is_process`: this rank is a process, which may be ended; otherwise it is a thread of a test.
  Impl(std::unique_ptr<Communicator> ranks, const LaunchOptions& options, bool is_process)
      : options_(options),
        is_process_(is_process),
        ranks_(std::move(ranks), WatchOptions()),
        for_host_(&ranks_) {}
  ~Impl() {
    if (ranks_.size() > 1 && !in_end_) AbortAll(1);
  }

  // Exchanges the hosts of all ranks.
  absl::Status Begin() {
    hosts_ = {ranks_.host()};
    if (ranks_.size() == 1) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(hosts_, AllGather(&ranks_, ranks_.host()));
    const ProcessorCounts counts = CountProcessors();
    const auto here = std::count(hosts_.begin(), hosts_.end(), hosts_[ranks_.rank()]);
    if (here > 1 && counts.affinity == counts.machine) {
      default_threads_ = std::max(1, AvailableProcessors() / static_cast<int>(here));
    }
    return absl::OkStatus();
  }

  int End(const absl::Status& status, int exit_code) {
    in_end_ = true;
    if (ranks_.size() == 1) {
      PrintError(std::string(status.message()));
      return exit_code;
    }
    return status.ok() ? LeaveInOrder(exit_code)
                       : LeaveWithError(std::string(status.message()), exit_code);
  }

  StallWatch* ranks() { return &ranks_; }
  const plumb_communicator* communicator() const { return for_host_.get(); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  int default_threads() const { return default_threads_; }

 private:
  StallWatchOptions WatchOptions() {
    StallWatchOptions watch;
    watch.grace_seconds = options_.grace_seconds;
    watch.on_stall = [this](int rank, double seconds) {
      if (options_.print_note == nullptr) return;
      options_.print_note(absl::StrCat("ranks have waited ", std::llround(seconds), " s for ",
                                       Named(rank), ": it computes, hangs, or is cut off"));
    };
    watch.on_failure = [this](int code, const std::string& text) { EndAll(text, code); };
    return watch;
  }

  std::string Named(int rank) const {
    const size_t at = static_cast<size_t>(rank);
    return absl::StrCat("rank ", rank,
                        at < hosts_.size() ? absl::StrCat(" on host ", hosts_[at]) : "");
  }

  void PrintError(const std::string& text) const {
    if (!text.empty() && options_.print_error != nullptr) options_.print_error(text);
  }

  // Prints the error and ends all ranks. Returns only if ranks are threads.
  void EndAll(const std::string& text, int code) {
    if (ended_with_.has_value()) return;
    ended_with_ = code;
    PrintError(text);
    AbortAll(code);
  }

  void AbortAll(int code) {
    if (is_process_) alarm(kAbortSeconds);
    ranks_.Abort(code);
    if (is_process_) _exit(code);
  }

  int LeaveInOrder(int exit_code) {
    const double mine = exit_code;
    const absl::StatusOr<std::vector<double>> codes =
        AllGather(&ranks_, absl::MakeConstSpan(&mine, 1));
    if (!codes.ok()) return LeaveWithError(std::string(codes.status().message()), 1);
    if (const absl::Status met = ranks_.Barrier(); met.ok()) ranks_.Drain();
    const auto first = std::find_if(codes->begin(), codes->end(), [](double c) { return c != 0; });
    return first == codes->end() ? 0 : static_cast<int>(*first);
  }

  int LeaveWithError(const std::string& text, int exit_code) {
    if (ended_with_.has_value()) return *ended_with_;
    if (ranks_.rank() == 0) {
      EndAll(text, exit_code);
      return exit_code;
    }
    const std::string named = text.empty() ? "" : absl::StrCat(Named(ranks_.rank()), ": ", text);
    // kAborted means that rank 0 has printed an error.
    if (absl::IsAborted(ranks_.ReportFailure(exit_code, named, kReportSeconds))) return exit_code;
    EndAll(named, exit_code);
    return exit_code;
  }

  const LaunchOptions options_;
  const bool is_process_;
  StallWatch ranks_;
  const ForHost for_host_;
  std::vector<std::string> hosts_;
  int default_threads_ = 0;
  bool in_end_ = false;            // End was called on this rank
  std::optional<int> ended_with_;  // exit code, if this rank has aborted the job
};

bool Launch::IsLaunched() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  return std::any_of(std::begin(kRankVariables), std::end(kRankVariables), is_set) ||
         std::any_of(std::begin(kSizeVariables), std::end(kSizeVariables), is_set);
}

int Launch::LaunchedRank() {
  for (const char* name : kRankVariables) {
    if (const char* const rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return 0;
}

absl::StatusOr<std::unique_ptr<Launch>> Launch::Find(const LaunchOptions& options) {
  const std::string library = MpiLibrary(options);
  if (!IsLaunched() || library.empty()) return Of(SingleRank(), options);
  if (access(library.c_str(), R_OK) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "started as one of several ranks, and this plumb has no MPI: there is no ", library,
        "; build with -DPLUMB_MPI=ON, install the package plumb-mpi, or name one by "
        "PLUMB_MPI_LIBRARY (empty: each process runs alone)"));
  }
  const JoinDeadline deadline(options);
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> ranks, JoinByMpi(library));
  auto impl = std::make_unique<Impl>(std::move(ranks), options, /*is_process=*/true);
  PLUMB_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<Launch>(new Launch(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Launch>> Launch::Of(std::unique_ptr<Communicator> ranks,
                                                   const LaunchOptions& options) {
  auto impl = std::make_unique<Impl>(std::move(ranks), options, /*is_process=*/false);
  PLUMB_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<Launch>(new Launch(std::move(impl)));
}

Launch::Launch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Launch::~Launch() = default;

int Launch::rank() const { return impl_->ranks()->rank(); }
int Launch::size() const { return impl_->ranks()->size(); }
const std::vector<std::string>& Launch::hosts() const { return impl_->hosts(); }
int Launch::default_threads() const { return impl_->default_threads(); }
Communicator* Launch::ranks() { return impl_->ranks(); }
const plumb_communicator* Launch::communicator() const {
  return size() == 1 ? nullptr : impl_->communicator();
}

absl::StatusOr<bool> Launch::Any(bool mine) {
  const double value = mine ? 1 : 0;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<double> all,
                         AllGather(ranks(), absl::MakeConstSpan(&value, 1)));
  return std::any_of(all.begin(), all.end(), [](double each) { return each != 0; });
}

int Launch::End(const absl::Status& status, int exit_code) { return impl_->End(status, exit_code); }

absl::StatusOr<std::unique_ptr<Communicator>> JoinByMpi(const std::string& file) {
  // Libraries that MPI loads may change the floating-point mode of this thread.
  std::fenv_t environment;
  std::fegetenv(&environment);
  // The library is never unloaded, because MPI leaves threads and handlers behind. It is global,
  // because the plugins of some MPI versions search for MPI's symbols there.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  decltype(&plumb_mpi_communicator) communicator = nullptr;
  decltype(&plumb_mpi_release) release = nullptr;
  if (library == nullptr || !FindFunction(library, "plumb_mpi_communicator", &communicator) ||
      !FindFunction(library, "plumb_mpi_release", &release)) {
    std::fesetenv(&environment);
    return NotLoaded(file);
  }
  plumb_communicator host;
  std::memset(&host, 0, sizeof(host));
  host.struct_size = sizeof(host);
  char problem[512] = "";
  const plumb_status code = communicator(nullptr, &host, problem, sizeof(problem));
  std::fesetenv(&environment);
  if (code != PLUMB_OK) {
    return absl::Status(static_cast<absl::StatusCode>(code), absl::StrCat(file, ": ", problem));
  }
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> ranks, FromHost(host));
  return std::make_unique<MpiCommunicator>(host, release, std::move(ranks));
}

}  // namespace plumb
