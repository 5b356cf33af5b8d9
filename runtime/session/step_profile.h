// SPDX-License-Identifier: Apache-2.0
// StepProfile: the time of steps, by op of the graph and by stage outside of it. Owned by the
// caller, which passes it to a TrainSession or a DecodeSession. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_STEP_PROFILE_H_
#define PLUMB_RUNTIME_SESSION_STEP_PROFILE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/compile/executable.h"

namespace plumb {

class StepProfile {
 public:
  // One op, or one stage outside of the graph, summed over all steps.
  struct Row {
    std::string name;
    bool in_graph = true;
    int64_t runs = 0;
    double seconds = 0;
    double flops = 0;  // 0: the op's are not counted
    double bytes = 0;  // size of operands, each counted once; 0 outside of the graph
  };

  // Runs the executable, with the same bits as its Run, and adds the times of its nodes. Allocates.
  // `after`: as in Executable::RunAndTime.
  absl::Status Run(const Executable& executable, int threads,
                   const Executable::AfterNode* after = nullptr);

  // Adds a run of a stage outside of the graph.
  void Add(absl::string_view stage, double seconds);
  // Ends a step with a total time of `seconds`.
  void EndStep(double seconds);

  int64_t steps() const { return steps_; }
  double seconds() const { return seconds_; }  // time of all steps
  // Returns the rows of the graph, the longest first; then the other stages; then the remaining
  // time, as "other".
  std::vector<Row> Rows() const;

 private:
  // A program and its times by node. Times are added up by op only in Rows(), so that adding a run
  // is cheap compared with a step.
  struct Times {
    std::shared_ptr<const CompiledProgram> program;
    std::vector<double> seconds_by_node;
    int64_t runs = 0;
  };
  std::vector<Times> programs_;
  std::map<std::string, Row> stages_;
  int64_t steps_ = 0;
  double seconds_ = 0;
};

// Adds its lifetime to a stage of `profile`, unless that is null.
class StageTimer {
 public:
  StageTimer(StepProfile* profile, const char* stage) : profile_(profile), stage_(stage) {
    if (profile_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;
  ~StageTimer() {
    if (profile_ == nullptr) return;
    const auto end = std::chrono::steady_clock::now();
    profile_->Add(stage_, std::chrono::duration<double>(end - start_).count());
  }

 private:
  StepProfile* const profile_;
  const char* const stage_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_STEP_PROFILE_H_
