#include "cli/compare/study_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/compare/run_files.h"
#include "cli/output.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/tags.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

std::string MessageText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status SendMessage(Communicator* ranks, int to, const Json& json) {
  return SendText(ranks, to, kTagStudy, MessageText(json));
}

absl::StatusOr<Json> ReceiveMessage(Communicator* ranks, int from) {
  const absl::StatusOr<std::string> text = ReceiveText(ranks, from, kTagStudy);
  if (!text.ok()) return text.status();
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InternalError(absl::StrCat("rank ", from, " speaks of no study"));
  }
  return json;
}

absl::Status SendFiles(Communicator* ranks, int to, const std::string& run,
                       const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> content =
        ReadFile(absl::StrCat(run, "/", file), kMaxResultBytes);
    if (!content.ok()) return content.status();
    if (absl::Status sent = SendText(ranks, to, kTagStudy, *content); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status ReceiveFiles(Communicator* ranks, int from, const std::string& run,
                          const std::vector<std::string>& files) {
  absl::StatusOr<IncomingRun> incoming = IncomingRun::Begin(run);
  if (!incoming.ok()) return incoming.status();
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> content = ReceiveText(ranks, from, kTagStudy);
    if (!content.ok()) return content.status();
    if (absl::Status added = incoming->Add(file, *content); !added.ok()) return added;
  }
  return incoming->Finish();
}

}  // namespace

StudyLeader::StudyLeader(const Plan* plan, Communicator* ranks)
    : plan_(plan), ranks_(ranks), following_(ranks->size() - 1) {}

absl::Status StudyLeader::Serve(const Desk& desk) {
  while (true) {
    const absl::StatusOr<std::optional<Communicator::Message>> next = ranks_->Probe(kTagStudy);
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    if (absl::Status answered = Answer((*next)->from, desk); !answered.ok()) return answered;
  }
}

absl::Status StudyLeader::Answer(int rank, const Desk& desk) {
  absl::StatusOr<Json> report = ReceiveMessage(ranks_, rank);
  if (!report.ok()) return report.status();
  for (const Json& run : (*report)["running"]) {
    RunState& state = (*desk.states)[run[0].get<size_t>()];
    state.phase = RunPhase::kRunning;
    state.step = run[1].get<int64_t>();
    state.loss = run[2].is_number() ? run[2].get<double>() : 0;
  }
  for (const Json& run : (*report)["ended"]) {
    const auto index = run["run"].get<size_t>();
    const absl::Status taken = ReceiveFiles(ranks_, rank, plan_->runs[index].directory,
                                            run["files"].get<std::vector<std::string>>());
    if (!taken.ok()) return taken;
    RunState& state = (*desk.states)[index];
    state.step = run["step"].get<int64_t>();
    state.loss = run["loss"].is_number() ? run["loss"].get<double>() : 0;
    const std::string how = run["how"].get<std::string>();
    state.phase = how == "finished"   ? RunPhase::kFinished
                  : how == "diverged" ? RunPhase::kDiverged
                                      : RunPhase::kWaiting;
  }
  for (const Json& warning : (*report)["warnings"]) desk.warn(warning.get<std::string>());
  interrupted_ = interrupted_ || (*report)["interrupted"].get<bool>();
  const bool leaves = (*report)["leaves"].get<bool>();
  if (leaves) --following_;

  const bool stop = desk.stop || interrupted_;
  const auto free = leaves || stop ? 0 : (*report)["free"].get<int64_t>();
  Json runs = Json::array();
  bool closed = stop;
  for (int64_t i = 0; i < free && !closed; ++i) {
    const std::optional<size_t> run = desk.take();
    closed = !run.has_value();
    if (closed) break;
    (*desk.states)[*run].phase = RunPhase::kRunning;
    const std::string& directory = plan_->runs[*run].directory;
    std::vector<std::string> files;
    if (FileExists(directory)) {
      absl::StatusOr<std::vector<std::string>> listed = ListRunFiles(directory);
      if (!listed.ok()) return listed.status();
      files = *std::move(listed);
    }
    runs.push_back({{"run", *run}, {"files", std::move(files)}});
  }
  const Json answer = {{"runs", runs}, {"closed", closed}, {"stop", stop}};
  if (absl::Status sent = SendMessage(ranks_, rank, answer); !sent.ok()) return sent;
  for (const Json& run : runs) {
    const absl::Status sent =
        SendFiles(ranks_, rank, plan_->runs[run["run"].get<size_t>()].directory,
                  run["files"].get<std::vector<std::string>>());
    if (!sent.ok()) return sent;
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
    absl::StatusOr<std::vector<std::string>> files = ListRunFiles(plan_->runs[run].directory);
    if (!files.ok()) return files.status();
    const RunPhase phase = states[run].phase;
    ended.push_back({{"run", run},
                     {"how", phase == RunPhase::kFinished   ? "finished"
                             : phase == RunPhase::kDiverged ? "diverged"
                                                            : "interrupted"},
                     {"step", states[run].step.load()},
                     {"loss", states[run].loss.load()},
                     {"files", *std::move(files)}});
  }
  const Json message = {{"free", report.free},
                        {"running", running},
                        {"ended", ended},
                        {"warnings", report.warnings},
                        {"interrupted", report.interrupted},
                        {"leaves", report.leaves}};
  if (absl::Status sent = SendMessage(ranks_, 0, message); !sent.ok()) return sent;
  for (const Json& run : ended) {
    const std::string& directory = plan_->runs[run["run"].get<size_t>()].directory;
    const absl::Status sent =
        SendFiles(ranks_, 0, directory, run["files"].get<std::vector<std::string>>());
    if (!sent.ok()) return sent;
    if (absl::Status removed = RemoveTree(directory); !removed.ok()) return removed;
  }
  const absl::StatusOr<Json> answer = ReceiveMessage(ranks_, 0);
  if (!answer.ok()) return answer.status();
  RankAnswer result;
  result.closed = (*answer)["closed"].get<bool>();
  result.stop = (*answer)["stop"].get<bool>();
  for (const Json& run : (*answer)["runs"]) {
    const auto index = run["run"].get<size_t>();
    const absl::Status received = ReceiveFiles(ranks_, 0, plan_->runs[index].directory,
                                               run["files"].get<std::vector<std::string>>());
    if (!received.ok()) return received;
    result.runs.push_back(index);
  }
  return result;
}

}  // namespace plumb::cli
