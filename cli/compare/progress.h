// SPDX-License-Identifier: Apache-2.0
// StudyProgress: how a study goes, on stderr. On a terminal a table that is rewritten, one line a
// group; elsewhere (a log file) one line for every run that ends. Owned by one thread; RunState is
// written by the thread that trains.
#ifndef PLUMB_CLI_COMPARE_PROGRESS_H_
#define PLUMB_CLI_COMPARE_PROGRESS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/compare/plan.h"

namespace plumb::cli {

// kElsewhere: not of this shard.
enum class RunPhase { kWaiting, kRunning, kFinished, kDiverged, kElsewhere };

struct RunState {
  std::atomic<RunPhase> phase{RunPhase::kWaiting};
  std::atomic<int64_t> step{0};
  std::atomic<double> loss{0};     // of the last step; at the end the mean of the last 100
  std::atomic<bool> found{false};  // had ended before this process began
};

class StudyProgress {
 public:
  // Both must outlive it.
  StudyProgress(const Plan* plan, const std::vector<RunState>* states, bool quiet);

  // Shows what has changed; on a terminal at most ten times a second, unless `now`.
  void Update(bool now);
  // A line of its own.
  void Note(absl::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  void Redraw();
  void Log();
  std::string Summary() const;
  std::string GroupLine(size_t group, size_t width) const;
  void Erase();

  const Plan* plan_;
  const std::vector<RunState>* states_;
  const bool quiet_, terminal_;
  const Clock::time_point begin_;
  Clock::time_point shown_at_;
  int lines_ = 0;             // of the table that stands above the cursor
  std::vector<bool> logged_;  // runs whose end was told
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_PROGRESS_H_
