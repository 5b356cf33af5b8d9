// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/step_profile.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/compile/executable.h"

namespace plumb {
namespace {

std::vector<StepProfile::Row> LongestFirst(const std::map<std::string, StepProfile::Row>& rows) {
  std::vector<StepProfile::Row> sorted;
  for (const auto& [name, row] : rows) sorted.push_back(row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace

absl::Status StepProfile::Run(const Executable& executable, int threads,
                              const Executable::AfterNode* after) {
  auto at = std::find_if(programs_.begin(), programs_.end(),
                         [&](const Times& times) { return times.program == executable.program(); });
  if (at == programs_.end()) {
    Times times;
    times.program = executable.program();
    times.seconds_by_node.assign(executable.graph().nodes.size(), 0.0);
    at = programs_.insert(at, std::move(times));
  }
  ++at->runs;
  return executable.RunAndTime(threads, absl::MakeSpan(at->seconds_by_node), after);
}

void StepProfile::Add(absl::string_view stage, double seconds) {
  Row& row = stages_[std::string(stage)];
  row.name = std::string(stage);
  row.in_graph = false;
  ++row.runs;
  row.seconds += seconds;
}

void StepProfile::EndStep(double seconds) {
  ++steps_;
  seconds_ += seconds;
}

std::vector<StepProfile::Row> StepProfile::Rows() const {
  std::map<std::string, Row> ops;
  for (const Times& times : programs_) {
    const std::vector<NodeTime> costs = NodeCosts(times.program->graph);
    for (size_t i = 0; i < costs.size(); ++i) {
      Row& row = ops[costs[i].op];
      row.name = costs[i].op;
      row.runs += times.runs;
      row.seconds += times.seconds_by_node[i];
      row.flops += static_cast<double>(times.runs) * costs[i].flops;
      row.bytes += static_cast<double>(times.runs) * static_cast<double>(costs[i].bytes);
    }
  }
  std::vector<Row> rows = LongestFirst(ops);
  for (Row& row : LongestFirst(stages_)) rows.push_back(std::move(row));
  Row other;
  other.name = "other";
  other.in_graph = false;
  other.runs = steps_;
  other.seconds = seconds_;
  for (const Row& row : rows) other.seconds -= row.seconds;
  other.seconds = std::max(0.0, other.seconds);
  rows.push_back(other);
  return rows;
}

}  // namespace plumb
