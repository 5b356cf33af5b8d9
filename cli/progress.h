// SPDX-License-Identifier: Apache-2.0
// The progress of commands on stderr. Objects are owned by one command; one thread.
#ifndef PLUMB_CLI_PROGRESS_H_
#define PLUMB_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/app/tokenize.h"
#include "runtime/app/train/train.h"

namespace plumb::cli {

// One line that is rewritten, on a terminal only; elsewhere, and if `quiet`, it shows nothing.
class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  bool shows() const { return shows_; }
  // Replaces the line by this one, which is cut to the terminal's width.
  void Show(std::string line);
  // Removes the line.
  void Clear();
  // Leaves the line where it is and ends it.
  void End();

 private:
  const bool shows_;
  bool open_ = false;  // the cursor stands in the line
};

// Exponential mean of a series, without the pull of its start towards zero.
class SmoothMean {
 public:
  explicit SmoothMean(double decay) : decay_(decay) {}
  void Add(double value);
  double value() const;  // 0 before the first Add

 private:
  double decay_;
  double sum_ = 0, weight_ = 0;
};

// Shows the steps of a training run: on a terminal one line that is rewritten at most ten times a
// second; elsewhere (a log file) a plain line at most every ten seconds, and for the first and the
// last step. Validation losses get lines of their own.
class TrainProgress {
 public:
  // Steps up to last_step will come, of a run of max_steps.
  TrainProgress(int64_t last_step, int64_t max_steps, bool quiet);

  void Step(const StepReport& report);
  // A line of its own, not lost in the one that is rewritten.
  void Note(absl::string_view text);
  // No more steps: shows the last one and ends its line.
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
  SmoothMean wall_{0.95};  // from one step's end to the next's
  StepReport last_;
  Clock::time_point last_step_end_;
  Clock::time_point shown_at_;
  int64_t shown_step_ = -1;
};

// Shows how much of a text has been tokenized, on a terminal only.
class TokenizeProgressLine {
 public:
  explicit TokenizeProgressLine(bool quiet);
  // OK always, so that it serves as an observer.
  absl::Status Show(const TokenizeProgress& now);
  // Removes the line.
  void End() { status_.Clear(); }

 private:
  StatusLine status_;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PROGRESS_H_
