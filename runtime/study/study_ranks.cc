// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/study/study_directory.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

std::string MessageText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status SendMessage(Communicator* ranks, int to, const Json& json) {
  return SendText(ranks, to, kTagStudy, MessageText(json));
}

absl::StatusOr<Json> ReceiveMessage(Communicator* ranks, int from) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReceiveText(ranks, from, kTagStudy));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InternalError(
        absl::StrCat("rank ", from, " sent a message that is not of a study"));
  }
  return json;
}

absl::Status SendFiles(Communicator* ranks, int to, const std::string& run,
                       const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    PLUMB_ASSIGN_OR_RETURN(const std::string content,
                           ReadFile(absl::StrCat(run, "/", file), kMaxResultBytes));
    PLUMB_RETURN_IF_ERROR(SendText(ranks, to, kTagStudy, content));
  }
  return absl::OkStatus();
}

absl::Status ReceiveFiles(Communicator* ranks, int from, const std::string& run,
                          const std::vector<std::string>& files) {
  PLUMB_ASSIGN_OR_RETURN(IncomingRun incoming, IncomingRun::Begin(run));
  for (const std::string& file : files) {
    PLUMB_ASSIGN_OR_RETURN(const std::string content, ReceiveText(ranks, from, kTagStudy));
    PLUMB_RETURN_IF_ERROR(incoming.Add(file, content));
  }
  return incoming.Finish();
}

}  // namespace

StudyLeader::StudyLeader(const StudyPlan* plan, Communicator* ranks)
    : plan_(plan), ranks_(ranks), following_(ranks->size() - 1) {}

absl::Status StudyLeader::Serve(const LeaderState& leader) {
  while (true) {
    PLUMB_ASSIGN_OR_RETURN(const std::optional<Communicator::Message> next,
                           ranks_->Probe(kTagStudy));
    if (!next.has_value()) return absl::OkStatus();
    PLUMB_RETURN_IF_ERROR(Answer(next->from, leader));
  }
}

absl::Status StudyLeader::Answer(int rank, const LeaderState& leader) {
  PLUMB_ASSIGN_OR_RETURN(Json report, ReceiveMessage(ranks_, rank));
  for (const Json& run : report["running"]) {
    RunState& state = (*leader.states)[run[0].get<size_t>()];
    state.phase = RunPhase::kRunning;
    state.step = run[1].get<int64_t>();
    state.loss = run[2].is_number() ? run[2].get<double>() : 0;
  }
  for (const Json& run : report["ended"]) {
    const auto index = run["run"].get<size_t>();
    PLUMB_RETURN_IF_ERROR(ReceiveFiles(ranks_, rank, plan_->runs[index].directory,
                                       run["files"].get<std::vector<std::string>>()));
    RunState& state = (*leader.states)[index];
    state.step = run["step"].get<int64_t>();
    state.loss = run["loss"].is_number() ? run["loss"].get<double>() : 0;
    const std::string how = run["how"].get<std::string>();
    state.phase = how == "finished"   ? RunPhase::kFinished
                  : how == "diverged" ? RunPhase::kDiverged
                                      : RunPhase::kWaiting;
  }
  for (const Json& warning : report["warnings"]) leader.warn(warning.get<std::string>());
  interrupted_ = interrupted_ || report["interrupted"].get<bool>();
  const bool leaves = report["leaves"].get<bool>();
  if (leaves) --following_;

  const bool stop = leader.stop || interrupted_;
  const auto free = leaves || stop ? 0 : report["free"].get<int64_t>();
  Json runs = Json::array();
  bool closed = stop;
  for (int64_t i = 0; i < free && !closed; ++i) {
    const std::optional<size_t> run = leader.take();
    closed = !run.has_value();
    if (closed) break;
    (*leader.states)[*run].phase = RunPhase::kRunning;
    const std::string& directory = plan_->runs[*run].directory;
    std::vector<std::string> files;
    if (FileExists(directory)) {
      PLUMB_ASSIGN_OR_RETURN(files, ListRunFiles(directory));
    }
    runs.push_back({{"run", *run}, {"files", std::move(files)}});
  }
  const Json answer = {{"runs", runs}, {"closed", closed}, {"stop", stop}};
  PLUMB_RETURN_IF_ERROR(SendMessage(ranks_, rank, answer));
  for (const Json& run : runs) {
    PLUMB_RETURN_IF_ERROR(SendFiles(ranks_, rank, plan_->runs[run["run"].get<size_t>()].directory,
                                    run["files"].get<std::vector<std::string>>()));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankAnswer> StudyFollower::Report(const RankReport& report,
                                                 const std::vector<RunState>& states) {
  Json running = Json::array(), ended = Json::array();
  for (size_t run : report.running) {
    running.push_back(Json::array({run, states[run].step.load(), states[run].loss.load()}));
  }
  for (size_t run : report.ended) {
    PLUMB_ASSIGN_OR_RETURN(std::vector<std::string> files,
                           ListRunFiles(plan_->runs[run].directory));
    const RunPhase phase = states[run].phase;
    ended.push_back({{"run", run},
                     {"how", phase == RunPhase::kFinished   ? "finished"
                             : phase == RunPhase::kDiverged ? "diverged"
                                                            : "interrupted"},
                     {"step", states[run].step.load()},
                     {"loss", states[run].loss.load()},
                     {"files", std::move(files)}});
  }
  const Json message = {{"free", report.free},
                        {"running", running},
                        {"ended", ended},
                        {"warnings", report.warnings},
                        {"interrupted", report.interrupted},
                        {"leaves", report.leaves}};
  PLUMB_RETURN_IF_ERROR(SendMessage(ranks_, 0, message));
  for (const Json& run : ended) {
    const std::string& directory = plan_->runs[run["run"].get<size_t>()].directory;
    PLUMB_RETURN_IF_ERROR(
        SendFiles(ranks_, 0, directory, run["files"].get<std::vector<std::string>>()));
    PLUMB_RETURN_IF_ERROR(RemoveTree(directory));
  }
  PLUMB_ASSIGN_OR_RETURN(const Json answer, ReceiveMessage(ranks_, 0));
  RankAnswer result;
  result.closed = answer["closed"].get<bool>();
  result.stop = answer["stop"].get<bool>();
  for (const Json& run : answer["runs"]) {
    const auto index = run["run"].get<size_t>();
    PLUMB_RETURN_IF_ERROR(ReceiveFiles(ranks_, 0, plan_->runs[index].directory,
                                       run["files"].get<std::vector<std::string>>()));
    result.runs.push_back(index);
  }
  return result;
}

}  // namespace plumb
