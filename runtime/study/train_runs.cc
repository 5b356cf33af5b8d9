// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/train_runs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/study/run_record.h"
#include "runtime/study/study_directory.h"
#include "runtime/study/study_ranks.h"
#include "runtime/train/loss_summary.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/trained_model.h"

namespace plumb {
namespace {

// Maximum length of a sample; nobody reads longer ones.
constexpr int64_t kMaxSampleTokens = 256;

// State shared by the threads.
struct Shared {
  explicit Shared(size_t runs) : states(runs) {}

  std::vector<RunState> states;
  std::deque<size_t> queue;       // runs that no thread has taken yet
  std::atomic<bool> stop{false};  // stop between two steps
  std::mutex mutex;               // guards everything below, and the queue
  std::condition_variable changed;
  size_t working = 0;  // running threads
  size_t willing = 0;  // threads that will take another run
  size_t idle = 0;     // threads that wait for a run
  bool closed = true;  // nothing will be added to the queue
  std::condition_variable filled;
  std::vector<size_t> ended;  // ended here, or interrupted with a checkpoint
  absl::Status error;
  std::vector<std::string> warnings;
};

absl::StatusOr<bool> HasCheckpoint(const std::string& run) {
  const auto names = ListDirectory(absl::StrCat(run, "/checkpoints"));
  if (absl::IsNotFound(names.status())) return false;
  if (!names.ok()) return names.status();
  return std::any_of(names->begin(), names->end(),
                     [](const std::string& name) { return absl::StartsWith(name, "step-"); });
}

// Resumes a run or starts it. A run without a checkpoint, or with a damaged one, is trained again
// from the start; its directory belongs to the study, so it may be removed.
absl::StatusOr<std::unique_ptr<TrainRun>> OpenRun(const StudyPlan& plan, const PlanRun& run,
                                                  HostRuntime* runtime) {
  TrainRequest request = plan.Request(run);
  PLUMB_ASSIGN_OR_RETURN(const bool resumes, HasCheckpoint(run.directory));
  if (resumes) {
    TrainRequest resumed = request;
    resumed.init.clear();  // the run's own weights continue
    absl::StatusOr<std::unique_ptr<TrainRun>> opened = TrainRun::Open(runtime, resumed);
    if (!absl::IsDataLoss(opened.status())) return opened;
  }
  request.resume = false;
  PLUMB_RETURN_IF_ERROR(RemoveRun(run.directory));
  return TrainRun::Open(runtime, request);
}

absl::Status DrawSamples(const StudyPlan& plan, const PlanRun& run, TrainRun* training,
                         HostRuntime* runtime, RunResult* result) {
  if (plan.study.samples() == 0) return absl::OkStatus();
  // The run need not have a checkpoint.
  PLUMB_ASSIGN_OR_RETURN(std::string weights, training->Weights());
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainedModel> model,
                         TrainedModel::OpenWith(weights, runtime, run.directory));
  weights = {};
  const int64_t context_length = training->info().context_length;
  if (!model->can_generate()) return absl::OkStatus();
  for (int64_t i = 0; i < plan.study.samples(); ++i) {
    GenerateOptions options;
    options.seed = run.seed;
    options.index = i;
    options.max_tokens = context_length > kMaxSampleTokens ? kMaxSampleTokens : 0;
    PLUMB_ASSIGN_OR_RETURN(const GenerateResult sample, model->Generate(options));
    result->samples.push_back({sample.text, Degenerate(sample.text)});
  }
  return absl::OkStatus();
}

// Adds warnings for divergences that a run survived. Spikes, which many runs have, appear in the
// tables only.
void NoteIncidents(const StudyPlan& plan, const PlanRun& run, const StepReport& report,
                   Shared* shared) {
  for (const TrainIncident& incident : report.incidents) {
    if (incident.kind == TrainIncident::Kind::kSpike) continue;
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->warnings.push_back(
        absl::StrCat(plan.groups[run.group].name, ", seed ", run.seed, ": ", incident.message));
  }
}

// Trains one run until it ends or `shared->stop` is set, and writes its result if it has ended.
absl::Status TrainOne(const StudyPlan& plan, size_t index, HostRuntime* runtime, Shared* shared) {
  const PlanRun& run = plan.runs[index];
  RunState& state = shared->states[index];
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainRun> opened, OpenRun(plan, run, runtime));
  TrainRun* training = opened.get();
  LossSummary losses;
  if (training->step() > 0) {
    losses.AddMetricsFile(RunMetricsPath(run.directory), training->step());
  }
  RunResult result;
  while (!training->done()) {
    if (shared->stop) return training->SaveCheckpoint().status();
    const absl::StatusOr<StepReport> report = training->Step();
    if (absl::IsAborted(report.status())) {
      result.status = RunStatus::kDiverged;
      result.message = std::string(report.status().message());
      break;
    }
    if (!report.ok()) return report.status();
    NoteIncidents(plan, run, *report, shared);
    losses.Add(report->step, report->loss, std::nullopt);
    state.step.store(report->step, std::memory_order_relaxed);
    state.loss.store(report->loss, std::memory_order_relaxed);
  }
  if (result.status == RunStatus::kFinished && plan.groups[run.group].training.has_validation) {
    const absl::StatusOr<double> validation = training->ValidationLoss();
    if (validation.ok()) {
      result.validation = *validation;
    } else if (absl::IsAborted(validation.status())) {
      result.status = RunStatus::kDiverged;
      result.message = std::string(validation.status().message());
    } else {
      return validation.status();
    }
  }
  const bool diverged = result.status == RunStatus::kDiverged;
  result.step = training->step() + (diverged ? 1 : 0);
  const IncidentCounts incidents = training->incidents();
  result.spikes = incidents.spikes;
  result.skips = incidents.skips;
  if (!diverged) PLUMB_RETURN_IF_ERROR(DrawSamples(plan, run, training, runtime, &result));
  if (const absl::Status written = WriteRunResult(run.directory, result); !written.ok()) {
    return written;
  }
  state.step = result.step;
  state.loss = losses.MeanOfLast100().value_or(0);
  state.phase = diverged ? RunPhase::kDiverged : RunPhase::kFinished;
  return absl::OkStatus();
}

// Takes a run from the queue. After the first seed, prefers the group that this thread trained
// last, because its runtime has the compiled programs. Requires: the queue is not empty.
size_t TakeRun(const StudyPlan& plan, size_t* last_group, Shared* shared) {
  std::deque<size_t>& queue = shared->queue;
  auto taken = queue.begin();
  if (plan.runs[*taken].seed != plan.seeds.front()) {
    const auto same = std::find_if(queue.begin(), queue.end(),
                                   [&](size_t run) { return plan.runs[run].group == *last_group; });
    if (same != queue.end()) taken = same;
  }
  const size_t run = *taken;
  queue.erase(taken);
  *last_group = plan.runs[run].group;
  return run;
}

void WorkInQueue(const StudyPlan& plan, HostRuntime* runtime, Shared* shared) {
  size_t last_group = plan.groups.size();  // none
  std::unique_lock<std::mutex> lock(shared->mutex);
  while (true) {
    ++shared->idle;
    shared->filled.wait(
        lock, [shared] { return shared->stop || shared->closed || !shared->queue.empty(); });
    --shared->idle;
    if (shared->stop || shared->queue.empty()) break;
    const size_t index = TakeRun(plan, &last_group, shared);
    lock.unlock();
    shared->states[index].phase = RunPhase::kRunning;
    absl::Status status;
    try {
      status = TrainOne(plan, index, runtime, shared);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError(absl::StrCat("out of memory; ", MemoryLimitText()));
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    lock.lock();
    for (std::string& warning : runtime->TakeWarnings()) {
      shared->warnings.push_back(std::move(warning));
    }
    if (absl::IsResourceExhausted(status) && shared->willing > 1) {
      // Another thread trains it once its own run has released its memory. If the disk is full,
      // perhaps because of another program, the last thread reports the error.
      shared->warnings.push_back(
          absl::StrCat("a run waits until another has ended: ", status.message()));
      shared->states[index].phase = RunPhase::kWaiting;
      shared->queue.push_front(index);
      shared->filled.notify_one();
      break;
    }
    if (status.ok()) shared->ended.push_back(index);
    if (!status.ok() && shared->error.ok()) {
      const PlanRun& run = plan.runs[index];
      shared->error = absl::Status(
          status.code(), absl::StrCat(status.message(), "\nin the run of ",
                                      plan.groups[run.group].name, " with seed ", run.seed));
      shared->stop = true;
      shared->filled.notify_all();
    }
    shared->changed.notify_one();
  }
  --shared->willing;
}

// Runs in each thread.
void Work(const StudyPlan& plan, HostRuntime* runtime, Shared* shared) {
  WorkInQueue(plan, runtime, shared);
  const std::lock_guard<std::mutex> lock(shared->mutex);
  shared->filled.notify_all();
  --shared->working;
  shared->changed.notify_one();
}

// Starts a thread for each runtime, or as many as the system allows.
absl::Status StartThreads(const StudyPlan& plan,
                          const std::vector<std::unique_ptr<HostRuntime>>& runtimes, Shared* shared,
                          std::vector<std::thread>* threads) {
  threads->reserve(runtimes.size());
  const std::lock_guard<std::mutex> lock(shared->mutex);
  for (const auto& runtime : runtimes) {
    try {
      threads->emplace_back(Work, std::cref(plan), runtime.get(), shared);
    } catch (const std::system_error& error) {
      const std::string why = absl::StrCat(
          error.code().message(),
          "; limits: ulimit -u (processes), ulimit -v (memory, of which each needs a stack)");
      if (threads->empty()) {
        return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", why));
      }
      shared->warnings.push_back(
          absl::StrCat("only ", threads->size(), " of ", runtimes.size(),
                       " runs are trained at once, because no more threads can be started: ", why));
      break;
    }
    ++shared->working;
    ++shared->willing;
  }
  return absl::OkStatus();
}

// Fills the queue with the runs that have not ended, seed by seed, so that early results compare
// all groups.
absl::Status FindWork(const StudyPlan& plan, Shared* shared) {
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    RunState& state = shared->states[i];
    if (!plan.Has(i)) {
      state.phase = RunPhase::kElsewhere;
      continue;
    }
    PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> read,
                           ReadRunResult(plan.runs[i].directory));
    const std::optional<RunResult>& result = read;
    if (!result) {
      shared->queue.push_back(i);
      continue;
    }
    LossSummary losses;
    losses.AddMetricsFile(RunMetricsPath(plan.runs[i].directory), result->step);
    state.found = true;
    state.step = result->step;
    state.loss = losses.MeanOfLast100().value_or(0);
    state.phase =
        result->status == RunStatus::kDiverged ? RunPhase::kDiverged : RunPhase::kFinished;
  }
  const size_t seeds = plan.seeds.size();
  std::stable_sort(shared->queue.begin(), shared->queue.end(),
                   [seeds](size_t a, size_t b) { return a % seeds < b % seeds; });
  return absl::OkStatus();
}

void ShowWarnings(Shared* shared, std::set<std::string>* shown, StudyHost* host) {
  for (const std::string& warning : shared->warnings) {
    if (shown->insert(warning).second) host->Warn(warning);
  }
  shared->warnings.clear();
}

std::vector<size_t> Running(const Shared& shared) {
  std::vector<size_t> running;
  for (size_t i = 0; i < shared.states.size(); ++i) {
    if (shared.states[i].phase == RunPhase::kRunning) running.push_back(i);
  }
  return running;
}

// Communication of a rank with the others, between two checks of its workers.
class Exchange {
 public:
  Exchange(const StudyPlan& plan, Communicator* ranks, StudyHost* host, Shared* shared)
      : shared_(*shared), host_(*host) {
    if (ranks == nullptr || ranks->size() == 1) return;
    if (ranks->rank() == 0) {
      leader_.emplace(&plan, ranks);
    } else {
      follower_.emplace(&plan, ranks);
      shared_.closed = false;
    }
  }

  bool leads() const { return leader_.has_value(); }
  bool follows() const { return follower_.has_value(); }
  // Returns true if other ranks are still at work.
  bool busy() const { return leads() && !leader_->all_left(); }

  absl::Status Poll() {
    if (host_.IsInterrupted()) was_interrupted_ = true;
    if (was_interrupted_) Stop();
    if (leads()) return Lead();
    if (follows()) return Follow(/*leaves=*/false);
    return absl::OkStatus();
  }
  // Sends the last report of a follower whose workers have ended.
  absl::Status Leave() { return Follow(/*leaves=*/true); }

 private:
  void Stop() {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.stop = true;
    shared_.filled.notify_all();
  }

  absl::Status Lead() {
    StudyLeader::LeaderState state;
    state.states = &shared_.states;
    state.stop = shared_.stop;
    state.take = [this]() -> std::optional<size_t> {
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      if (shared_.queue.empty()) return std::nullopt;
      const size_t run = shared_.queue.front();
      shared_.queue.pop_front();
      return run;
    };
    state.warn = [this](std::string warning) {
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      shared_.warnings.push_back(std::move(warning));
    };
    const absl::Status served = leader_->Serve(state);
    if (leader_->interrupted()) Stop();
    return served;
  }

  absl::Status Follow(bool leaves) {
    RankReport report;
    report.leaves = leaves;
    report.interrupted = was_interrupted_;
    {
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      if (!shared_.closed && !shared_.stop && shared_.idle > shared_.queue.size()) {
        report.free = static_cast<int64_t>(shared_.idle - shared_.queue.size());
      }
      const auto now = std::chrono::steady_clock::now();
      const bool has_news = leaves || report.free > 0 || !shared_.ended.empty() ||
                            was_interrupted_ || now - reported_ > std::chrono::milliseconds(200);
      if (!has_news) return absl::OkStatus();
      reported_ = now;
      report.ended.swap(shared_.ended);
      report.warnings.swap(shared_.warnings);
    }
    for (size_t run : Running(shared_)) {
      const bool is_told = std::count(report.ended.begin(), report.ended.end(), run) > 0;
      if (!is_told) report.running.push_back(run);
    }
    PLUMB_ASSIGN_OR_RETURN(const RankAnswer answer, follower_->Report(report, shared_.states));
    for (size_t run : report.ended) {
      if (shared_.states[run].phase == RunPhase::kRunning) {
        shared_.states[run].phase = RunPhase::kWaiting;  // it continues elsewhere
      }
    }
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.queue.insert(shared_.queue.end(), answer.runs.begin(), answer.runs.end());
    shared_.closed = shared_.closed || answer.closed;
    shared_.stop = shared_.stop || answer.stop;
    shared_.filled.notify_all();
    return absl::OkStatus();
  }

  Shared& shared_;
  StudyHost& host_;
  std::optional<StudyLeader> leader_;
  std::optional<StudyFollower> follower_;
  bool was_interrupted_ = false;
  std::chrono::steady_clock::time_point reported_;
};

// Waits until the workers have ended and, on the leader, until the other ranks have left.
void WaitForWorkers(Exchange* exchange, Shared* shared, StudyHost* host) {
  std::set<std::string> shown;
  const auto interval = std::chrono::milliseconds(exchange->leads() ? 10 : 50);
  std::unique_lock<std::mutex> lock(shared->mutex);
  bool talks = true;
  while (shared->working > 0 || (talks && shared->error.ok() && exchange->busy())) {
    shared->changed.wait_for(lock, interval);
    if (!exchange->follows()) ShowWarnings(shared, &shown, host);
    lock.unlock();
    const absl::Status went = talks ? exchange->Poll() : absl::OkStatus();
    if (!exchange->follows()) host->ShowProgress();
    lock.lock();
    if (went.ok()) continue;
    talks = false;
    if (shared->error.ok()) shared->error = went;
    shared->stop = true;
    shared->filled.notify_all();
  }
  if (!exchange->follows()) return ShowWarnings(shared, &shown, host);
  if (!shared->error.ok()) return;
  lock.unlock();
  const absl::Status left = exchange->Leave();
  lock.lock();
  if (!left.ok()) shared->error = left;
}

}  // namespace

absl::Status TrainRuns(const StudyPlan& plan, StudyDivision division, Communicator* ranks,
                       StudyHost* host) {
  Shared shared(plan.runs.size());
  Exchange exchange(plan, ranks, host, &shared);
  if (!exchange.follows()) {
    PLUMB_RETURN_IF_ERROR(FindWork(plan, &shared));
  }
  std::vector<std::unique_ptr<HostRuntime>> runtimes;
  for (int i = 0; i < division.workers; ++i) {
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime,
                           host->CreateRuntime(division.threads));
    runtimes.push_back(std::move(runtime));
  }

  host->BeginTraining(plan, shared.states, /*leads=*/!exchange.follows());
  std::vector<std::thread> threads;
  if (absl::Status started = StartThreads(plan, runtimes, &shared, &threads); !started.ok()) {
    host->EndTraining();
    return started;
  }
  WaitForWorkers(&exchange, &shared, host);
  for (std::thread& thread : threads) thread.join();
  host->EndTraining();
  PLUMB_RETURN_IF_ERROR(shared.error);
  if (exchange.follows()) return absl::OkStatus();  // rank 0 knows whether all have ended
  const bool all_ended =
      std::all_of(shared.states.begin(), shared.states.end(), [](const RunState& state) {
        const RunPhase phase = state.phase;
        return phase != RunPhase::kWaiting && phase != RunPhase::kRunning;
      });
  return all_ended ? absl::OkStatus() : absl::CancelledError("interrupted");
}

}  // namespace plumb
