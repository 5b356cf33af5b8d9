// SPDX-License-Identifier: Apache-2.0
// StudyProgress: progress of a study on stderr. On a terminal it redraws a table with one line per
// group; elsewhere (a log file) it prints one line for each run that ends, with the
// number of runs and the time left. Thread-compatible.
#ifndef PLUMB_CLI_STUDY_PROGRESS_H_
#define PLUMB_CLI_STUDY_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/study/plan.h"
#include "runtime/study/study_host.h"

namespace plumb::cli {

class StudyProgress {
 public:
  // Requires: `plan` and `states` outlive this object.
  StudyProgress(const StudyPlan* plan, const std::vector<RunState>* states, bool quiet);

  // Shows what has changed; on a terminal at most ten times a second, unless `now` is true.
  void Update(bool now);
  // Prints a message on its own line.
  void Note(absl::string_view text);

 private:
  using Clock = std::chrono::steady_clock;

  struct Counts {
    int64_t runs = 0, ended = 0, found = 0;  // found: ended before this process
    double seconds = 0, seconds_left = 0;    // left: 0 if unknown
  };

  Counts Count() const;
  void Redraw();
  void Log();
  size_t FirstRunning() const;  // group; 0 if no run is running
  std::string Summary() const;
  std::string GroupLine(size_t group, size_t width) const;
  void Erase();

  const StudyPlan* plan_;
  const std::vector<RunState>* states_;
  const bool quiet_, terminal_;
  const Clock::time_point begin_;
  Clock::time_point shown_at_;
  int lines_ = 0;             // height of the table above the cursor
  bool begun_ = false;        // the number of runs found has been logged
  std::vector<bool> logged_;  // runs whose end has been logged
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_STUDY_PROGRESS_H_
