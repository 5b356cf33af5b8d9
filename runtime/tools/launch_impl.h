// The inside of Launch: what ranks tell each other beside their work. See launch.h.
#ifndef PLUMB_RUNTIME_TOOLS_LAUNCH_IMPL_H_
#define PLUMB_RUNTIME_TOOLS_LAUNCH_IMPL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/ranks/host_communicator.h"
#include "runtime/ranks/stall_watch.h"
#include "runtime/tools/launch.h"

namespace plumb {

// A thread answers for this rank whatever it computes: every other rank and rank 0 send each other
// a sign of life (kAlive) now and then. What ends the job goes through rank 0: errors (kError),
// ends (kLeft), and the exit code that everyone then has (kVerdict). All by messages of
// kTagControl. Thread-safe but for the constructor and destructor.
class Launch::Impl {
 public:
  // `is_process`: this rank is a process, and may be ended; else it is a thread of a test.
  Impl(std::unique_ptr<Communicator> ranks, const LaunchOptions& options, bool is_process);
  ~Impl();

  absl::Status Begin();  // who is where; then the thread
  int End(const absl::Status& status, int exit_code);

  StallWatch* ranks() { return &ranks_; }
  const plumb_communicator* communicator() const { return for_host_.get(); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  int default_threads() const { return default_threads_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Kind : int32_t { kAlive = 1, kLeft, kError, kVerdict };
  // What a message begins with; the text follows.
  struct Head {
    int32_t kind;
    int32_t code;         // exit code
    int32_t follows;      // kError: whether it may be another rank's, seen from here
    int32_t waiting_for;  // kAlive: a rank, or -1
    double waited;        // seconds
  };
  struct Peer {
    Clock::time_point heard;
    std::optional<int> left;  // the exit code with which it has left
    int waiting_for = -1;
    double waited = 0;
    double noted = 0;  // that others waited for it
  };
  struct Failure {
    int rank;
    int code;
    bool follows;
    std::string text;
    Clock::time_point since;
  };
  struct Sending {
    int to;
    std::string message;
    Communicator::Transfer transfer;
  };

  void Watch();  // the thread
  absl::Status ReadMessages();
  void Heard(int from, const std::string& message);
  void SendAlive();
  void Send(int to, const Head& head, const std::string& text);
  void FinishSends();
  void LookForTheDead();
  void NoteWaits();
  // Of rank 0, when a rank has failed and others that fail with it have had the time to say so.
  void EndAfterFailure();
  const Failure* FirstFailure() const;
  std::string Named(int rank) const;  // "rank 2 on host b"
  // Prints and ends everyone. Returns where ranks are threads.
  void EndAll(const std::string& text, int code);
  void AbortAll(int code);
  // mpirun ends a job by telling its daemons, and waits for one that it cannot reach until TCP
  // gives up, a quarter of an hour. If it runs here and is still there in a while, it is ended.
  static void EndLauncherLater();
  int LeaveInOrder(int exit_code);
  int LeaveWithError(const absl::Status& status, int exit_code);

  StallWatch ranks_;
  const LaunchOptions options_;
  const bool is_process_;
  const ForHost for_host_;
  const Clock::duration beat_;
  std::vector<std::string> hosts_;
  int default_threads_ = 0;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::vector<Failure> failures_;
  std::optional<int> verdict_;
  bool in_end_ = false;  // this rank has come to its end
  bool ended_ = false;   // the job: somebody prints and aborts, or it was aborted
  bool stop_ = false;    // the thread
  std::list<Sending> sending_;
  Clock::time_point last_beat_;
  std::thread thread_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_LAUNCH_IMPL_H_
