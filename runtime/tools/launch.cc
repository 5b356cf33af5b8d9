#include "runtime/tools/launch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/links.h"
#include "runtime/ranks/mpi_library.h"
#include "runtime/ranks/single.h"
#include "runtime/tools/launch_impl.h"

namespace plumb {
namespace {

std::string MpiLibrary(const LaunchOptions& options) {
  const char* const named = std::getenv("PLUMB_MPI_LIBRARY");
  return named != nullptr ? named : options.mpi_library;
}

// Ends this process with an error unless all processes of the launcher have joined within the grace
// time, which is when this is destroyed. MPI itself waits for them without end: also for one that
// runs a program without MPI, or another command.
class JoinDeadline {
 public:
  explicit JoinDeadline(const LaunchOptions& options) {
    if (options.grace_seconds <= 0) return;
    // Rank 0 tells, and if it is the one that has not joined, the others do.
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

}  // namespace

absl::StatusOr<std::unique_ptr<Launch>> Launch::Find(const LaunchOptions& options) {
  const std::string library = MpiLibrary(options);
  if (!IsLaunched() || library.empty()) return Of(SingleRank(), options);
  if (access(library.c_str(), R_OK) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "started as one of several ranks, and this plumb has no MPI: there is no ", library,
        "; build with -DPLUMB_MPI=ON, install the package plumb-mpi, or name one by "
        "PLUMB_MPI_LIBRARY (empty: ranks that know nothing of each other)"));
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

absl::StatusOr<std::vector<RankLink>> Launch::MeasureAllLinks() {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<LinkSpeed> speeds, MeasureLinks(ranks(), hosts()));
  std::vector<RankLink> links;
  for (const LinkSpeed& each : speeds) {
    links.push_back({each.a, each.b, each.latency_seconds, each.bytes_per_second});
  }
  return links;
}

absl::StatusOr<bool> Launch::Any(bool mine) {
  const double value = mine ? 1 : 0;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<double> all,
                         AllGather(ranks(), absl::MakeConstSpan(&value, 1)));
  return std::any_of(all.begin(), all.end(), [](double each) { return each != 0; });
}

int Launch::End(const absl::Status& status, int exit_code) { return impl_->End(status, exit_code); }

}  // namespace plumb
