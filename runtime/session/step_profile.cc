// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/step_profile.h"

#include <algorithm>

#include "runtime/base/status.h"
#include "runtime/compile/node_cost.h"

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
                              Executable::AfterNode after) {
  const std::vector<NodeTime> costs = NodeCosts(executable.graph());
  seconds_by_node_.assign(costs.size(), 0.0);
  PLUMB_RETURN_IF_ERROR(executable.RunAndTime(threads, absl::MakeSpan(seconds_by_node_), after));
  for (size_t i = 0; i < costs.size(); ++i) {
    Row& row = ops_[costs[i].op];
    row.name = costs[i].op;
    ++row.runs;
    row.seconds += seconds_by_node_[i];
    row.flops += costs[i].flops;
    row.bytes += static_cast<double>(costs[i].bytes);
  }
  return absl::OkStatus();
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
  std::vector<Row> rows = LongestFirst(ops_);
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
