// SPDX-License-Identifier: Apache-2.0
// The runs of a study on several ranks: rank 0, who leads, hands them out and keeps their files;
// the others train them in directories of their own. All by messages: there need be no disk that
// several see.
//
// A follower reports, and the leader answers each report: no other message is sent, so that never
// two wait for each other. A report says what has ended since the last one, how far the others
// are, and how many runs could begin; the answer brings runs. The files of a run follow each as a
// message of its own, what a run that was interrupted had written included, in both directions.
#ifndef PLUMB_CLI_COMPARE_STUDY_RANKS_H_
#define PLUMB_CLI_COMPARE_STUDY_RANKS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/plan.h"
#include "cli/compare/progress.h"
#include "runtime/ranks/communicator.h"

namespace plumb::cli {

struct RankReport {
  int64_t free = 0;             // workers that wait for a run
  std::vector<size_t> ended;    // by their states: finished, diverged, or to be gone on with
  std::vector<size_t> running;  // their steps and losses are told
  std::vector<std::string> warnings;
  bool interrupted = false;
  bool leaves = false;  // the last report
};

struct RankAnswer {
  std::vector<size_t> runs;  // their files are in place
  bool closed = false;       // there will be no more
  bool stop = false;         // between two steps
};

// Of rank 0. One thread.
class StudyLeader {
 public:
  // What the leader has to give and to tell.
  struct Desk {
    std::vector<RunState>* states;
    std::function<std::optional<size_t>()> take;  // the next run, if there is one
    std::function<void(std::string)> warn;
    bool stop;
  };

  StudyLeader(const Plan* plan, Communicator* ranks);
  // Answers the reports that have arrived. Returns at once where there are none.
  absl::Status Serve(const Desk& desk);
  bool all_left() const { return following_ == 0; }
  bool interrupted() const { return interrupted_; }  // a follower was

 private:
  absl::Status Answer(int rank, const Desk& desk);

  const Plan* plan_;
  Communicator* ranks_;
  int following_;
  bool interrupted_ = false;
};

// Of any other rank. One thread.
class StudyFollower {
 public:
  // `plan` has the follower's own directory.
  StudyFollower(const Plan* plan, Communicator* ranks) : plan_(plan), ranks_(ranks) {}
  // The files of runs that ended are gone afterwards.
  absl::StatusOr<RankAnswer> Report(const RankReport& report, const std::vector<RunState>& states);

 private:
  const Plan* plan_;
  Communicator* ranks_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_STUDY_RANKS_H_
