// SPDX-License-Identifier: Apache-2.0
// Distribution of a study's runs over ranks: rank 0 (the leader) hands them out and stores their
// files; the others (followers) train them in their own directories. Everything is sent by
// messages, so no shared file system is needed.
//
// A follower reports and the leader answers each report. No other messages are sent, so two ranks
// can never wait for each other. A report lists the runs that ended since the last one, the
// progress of the others and how many runs could start; the answer assigns runs. The files of each
// run follow as one message each, in both directions, so that an interrupted run can resume
// elsewhere.
#ifndef PLUMB_RUNTIME_STUDY_STUDY_RANKS_H_
#define PLUMB_RUNTIME_STUDY_STUDY_RANKS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"
#include "runtime/study/plan.h"
#include "runtime/study/study_host.h"

namespace plumb {

struct RankReport {
  int64_t free = 0;             // idle workers
  std::vector<size_t> ended;    // finished, diverged or interrupted, according to their states
  std::vector<size_t> running;  // runs whose step and loss are sent
  std::vector<std::string> warnings;
  bool interrupted = false;
  bool leaves = false;  // true in the last report
};

struct RankAnswer {
  std::vector<size_t> runs;  // assigned runs, whose files are in place
  bool closed = false;       // no more runs will come
  bool stop = false;         // stop training between two steps
};

// Rank 0's side. Thread-compatible.
class StudyLeader {
 public:
  // State of the leading process that reports read and change.
  struct LeaderState {
    std::vector<RunState>* states;
    std::function<std::optional<size_t>()> take;  // returns the next run, if any
    std::function<void(std::string)> warn;
    bool stop;
  };

  StudyLeader(const StudyPlan* plan, Communicator* ranks);
  // Answers the reports that have arrived. Does not block if there are none.
  absl::Status Serve(const LeaderState& leader);
  bool all_left() const { return following_ == 0; }
  bool interrupted() const { return interrupted_; }  // true if a follower was interrupted

 private:
  absl::Status Answer(int rank, const LeaderState& leader);

  const StudyPlan* plan_;
  Communicator* ranks_;
  int following_;
  bool interrupted_ = false;
};

// Side of any other rank. Thread-compatible.
class StudyFollower {
 public:
  // Requires: `plan` has this rank's own directory.
  StudyFollower(const StudyPlan* plan, Communicator* ranks) : plan_(plan), ranks_(ranks) {}
  // Sends a report and receives the answer. Deletes the local files of the runs that ended.
  absl::StatusOr<RankAnswer> Report(const RankReport& report, const std::vector<RunState>& states);

 private:
  const StudyPlan* plan_;
  Communicator* ranks_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STUDY_RANKS_H_
