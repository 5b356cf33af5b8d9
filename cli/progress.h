// SPDX-License-Identifier: Apache-2.0
// Progress of commands on stderr. The classes are thread-compatible.
#ifndef PLUMB_CLI_PROGRESS_H_
#define PLUMB_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/convert/tokenize.h"
#include "runtime/train/train_run.h"

namespace plumb::cli {

// Status line that is rewritten in place. Shows nothing if stderr is no terminal, or if `quiet`.
class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  bool shows() const { return shows_; }
  // Replaces the line, cut to the terminal's width.
  void Show(std::string line);
  // Removes the line.
  void Clear();
  // Leaves the line on the screen and moves below it.
  void End();

 private:
  const bool shows_;
  bool open_ = false;  // the cursor is in the line
};

// Exponential moving average with bias correction, as in Adam.
class SmoothMean {
 public:
  explicit SmoothMean(double decay) : decay_(decay) {}
  void Add(double value);
  double value() const;  // 0 before the first Add

 private:
  double decay_;
  double sum_ = 0, weight_ = 0;
};

// Progress of a training run: on a terminal, one line that is rewritten at most ten times a second;
// elsewhere (a log file), one line at most every ten seconds and for the first and the last step.
// Validation losses have their own lines.
class TrainProgress {
 public:
  // Requires: steps up to `last_step` follow, of a run of `max_steps`.
  TrainProgress(int64_t last_step, int64_t max_steps, bool quiet);

  void Step(const StepReport& report);
  // Prints a message on its own line, above the status line.
  void Note(absl::string_view text);
  // Shows the last step and ends the status line. No step may follow.
  void End();

 private:
  using Clock = std::chrono::steady_clock;

  bool IsDue(Clock::time_point now) const;
  void Show(Clock::time_point now);
  std::string Line() const;

  const int64_t last_step_, max_steps_;
  const bool quiet_;
  StatusLine status_;
  SmoothMean loss_{0.95}, tokens_{0.95}, seconds_{0.95};
  SmoothMean wall_{0.95};  // from the end of one step to the end of the next
  StepReport last_;
  Clock::time_point last_step_end_;
  Clock::time_point shown_at_;
  int64_t shown_step_ = -1;
};

// Progress of tokenizing a text, on a terminal only.
class TokenizeProgressLine {
 public:
  explicit TokenizeProgressLine(bool quiet);
  // Always returns OK, so that it can serve as an observer.
  absl::Status Show(const TokenizeProgress& now);
  // Removes the line.
  void End() { status_.Clear(); }

 private:
  StatusLine status_;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PROGRESS_H_
