// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/process.h"

#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/float_state.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr size_t kMaxFindings = size_t{4} << 20, kMaxPrinted = 1000;
constexpr double kWholeCheck = 30;  // multiple of the limit for one call
#if !defined(__SANITIZE_ADDRESS__)
constexpr rlim_t kAddressSpace = rlim_t{16} << 30;
#endif

// -- In the process -------------------------------------------------------------------------------

// Returns the reason why this machine cannot run the norm, or "". This must be the first call.
std::string Unavailable(const plumb_norm_plugin& norm) {
  if (norm.available == nullptr) return "";
  char err[512] = "";
  const plumb_status status =
      Guarded(Function::kAvailable, 0, [&] { return norm.available(err, sizeof(err)); });
  err[sizeof(err) - 1] = '\0';
  if (status == PLUMB_OK) return "";
  return absl::StrCat(StatusText(status), err[0] == '\0' ? "" : ": ", err);
}

std::vector<ListedNorm> ListNorms(plumb_norm_plugin_v1_fn entry) {
  std::vector<ListedNorm> norms;
  for (uint32_t i = 0; i < kMaxNorms; ++i) {
    const plumb_norm_plugin* table = NormAt(entry, i);
    if (table == nullptr) break;
    ListedNorm norm;
    norm.index = i;
    norm.problem = TableProblem(*table);
    const bool has_id = table->struct_size >= offsetof(plumb_norm_plugin, id) + sizeof(table->id);
    norm.id = has_id && table->id != nullptr ? table->id : "?";
    if (norm.problem.empty()) norm.unavailable = Unavailable(*table);
    norms.push_back(std::move(norm));
  }
  return norms;
}

// Loads the plugin like a host and restores the floating-point state, which E5 checks.
plumb_norm_plugin_v1_fn Load(const std::string& path) {
  const FloatState before = FloatState::Current();
  const absl::StatusOr<void*> library = Open(path);
  before.Apply();
  if (!library.ok()) throw CheckEnded{std::string(library.status().message())};
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) throw CheckEnded{std::string(entry.status().message())};
  return *entry;
}

// Sets the environment of a user whose locale is not "C", so that a plugin that adopts it is
// detected. Does nothing if the system has no C.UTF-8 locale.
void SetUsersLocale() {
  constexpr char kLocale[] = "C.UTF-8";
  const locale_t locale = newlocale(LC_ALL_MASK, kLocale, nullptr);
  if (locale == nullptr) return;
  freelocale(locale);
  setenv("LC_ALL", kLocale, 1);
}

void PerformOrThrow(const Task& task, Report* report, std::vector<ListedNorm>* norms) {
  SetUsersLocale();
  Subject subject = task.subject;
  if (task.check == nullptr) {
    *norms = ListNorms(Load(subject.path));
    return;
  }
  if (task.check->scope == Scope::kNorm) {
    subject.norm = NormAt(Load(subject.path), task.norm_index);
    if (subject.norm == nullptr) {
      throw CheckEnded{"the norm is not there when it is asked for again"};
    }
    Unavailable(*subject.norm);
  }
  task.check->run(subject, report);
}

void Limit(__rlimit_resource resource, rlim_t max) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(max, limit.rlim_max);
  setrlimit(resource, &limit);
}

std::string ToText(const TaskResult& result) {
  Json findings = Json::array(), norms = Json::array();
  for (const Finding& finding : result.findings) {
    findings.push_back({static_cast<int>(finding.verdict), finding.text});
  }
  for (const ListedNorm& norm : result.norms) {
    norms.push_back({norm.index, norm.id, norm.problem, norm.unavailable});
  }
  return Json({{"findings", findings}, {"norms", norms}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns false if the text is not a complete result.
bool FromText(const std::string& text, TaskResult* result) try {
  const Json json = Json::parse(text);
  for (const Json& each : json.at("findings")) {
    result->findings.push_back({static_cast<Verdict>(each.at(0).get<int>()), each.at(1)});
  }
  for (const Json& each : json.at("norms")) {
    result->norms.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
  }
  return true;
} catch (const Json::exception&) {
  return false;
}

[[noreturn]] void RunChild(const Task& task, TracePage* page, int findings, int printed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer maps terabytes
  Limit(RLIMIT_AS, kAddressSpace);  // checks may raise it, up to the parent's limit
#endif
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(printed, STDOUT_FILENO) < 0 ||
      dup2(printed, STDERR_FILENO) < 0) {
    _exit(127);
  }
  std::signal(SIGPIPE, SIG_DFL);
  UseTracePage(page);
  InstallCrashHandlers();
  const std::string text = ToText(Perform(task));
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(findings, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(EXIT_FAILURE);
    written += static_cast<size_t>(n);
  }
  // Skips the destructors of the plugin's library, which are not checked.
  _exit(EXIT_SUCCESS);
}

// -- In the parent --------------------------------------------------------------------------------

// Read end of a pipe, and the data that it delivered.
struct Stream {
  ~Stream() { Close(); }
  void Close() {
    if (fd >= 0) close(std::exchange(fd, -1));
  }
  // Reads available data and keeps at most `max` bytes in total. Closes at the end of the stream.
  void Drain(size_t max) {
    char buffer[16 << 10];
    while (fd >= 0) {
      const ssize_t n = read(fd, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return Close();
      text.append(buffer, std::min(static_cast<size_t>(n), max - std::min(max, text.size())));
    }
  }

  int fd = -1;
  std::string text;
};

class Child {
 public:
  explicit Child(size_t task) : task_(task) { since_.fill(start_); }
  ~Child() {
    if (pid_ > 0) Kill();
    while (pid_ > 0 && waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Start(const Task& task) {
    int findings[2], printed[2];
    if (page_ == nullptr || pipe2(findings, O_CLOEXEC) != 0) return NoMore("memory or pipe");
    findings_.fd = findings[0];
    if (pipe2(printed, O_CLOEXEC) != 0) {
      close(findings[1]);
      return NoMore("pipe");
    }
    printed_.fd = printed[0];
    for (const int fd : {findings[0], printed[0]}) fcntl(fd, F_SETFL, O_NONBLOCK);
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0) RunChild(task, page_.get(), findings[1], printed[1]);
    close(findings[1]);
    close(printed[1]);
    return pid_ < 0 ? NoMore("process") : absl::OkStatus();
  }

  size_t task() const { return task_; }
  void AddTo(std::vector<pollfd>* events) const {
    for (const int fd : {findings_.fd, printed_.fd}) {
      if (fd >= 0) events->push_back({fd, POLLIN, 0});
    }
  }

  // Kills the process if one of its calls, or its whole run, takes too long.
  void StopIfHung(double limit) {
    if (!hung_.empty()) return;
    const Clock::time_point now = Clock::now();
    const auto longer = [now](Clock::time_point since, double seconds) {
      return std::chrono::duration<double>(now - since).count() > seconds;
    };
    for (size_t i = 0; i < kTraceSlots; ++i) {
      const TraceSlot& slot = page_->slots[i];
      const uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
      if (sequence != sequence_[i]) {
        sequence_[i] = sequence;
        since_[i] = now;
      } else if (sequence % 2 == 1 && longer(since_[i], limit)) {
        hung_ = absl::StrFormat("does not return from %s: stopped after %g s", DescribeCall(slot),
                                limit);
      }
    }
    if (hung_.empty() && longer(start_, kWholeCheck * limit)) {
      hung_ = absl::StrFormat("takes longer than %g s: stopped", kWholeCheck * limit);
    }
    if (!hung_.empty()) Kill();
  }

  // Returns true if the process has ended, and sets *result to its result.
  bool Reap(TaskResult* result) {
    findings_.Drain(kMaxFindings);
    printed_.Drain(kMaxPrinted);
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return false;
    }
    Kill();  // processes that the plugin started
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    findings_.Drain(kMaxFindings);
    printed_.Drain(kMaxPrinted);
    std::string death = hung_.empty() ? DescribeEnd(*page_, status) : hung_;
    result->died = !(hung_.empty() && status == 0 && FromText(findings_.text, result));
    if (result->died) {
      while (!printed_.text.empty() && printed_.text.back() == '\n') printed_.text.pop_back();
      if (!printed_.text.empty()) absl::StrAppend(&death, "; it printed: ", printed_.text);
      result->findings = {{Verdict::kFail, death}};
    }
    result->hung = !hung_.empty();
    result->point.assign(page_->point, strnlen(page_->point, sizeof(page_->point)));
    result->seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return true;
  }

 private:
  static absl::Status NoMore(const char* what) {
    return absl::UnavailableError(absl::StrCat("no ", what, ": ", std::strerror(errno)));
  }
  void Kill() const {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
  }

  const size_t task_;
  const Clock::time_point start_ = Clock::now();
  const TracePagePointer page_ = MakeSharedTracePage();
  pid_t pid_ = -1;
  Stream findings_, printed_;
  // Last call seen in each thread, and the time when it was first seen.
  std::array<uint64_t, kTraceSlots> sequence_{};
  std::array<Clock::time_point, kTraceSlots> since_;
  std::string hung_;  // reason why it was killed
};

}  // namespace

TaskResult Perform(const Task& task) {
  TaskResult result;
  Report report;
  try {
    PerformOrThrow(task, &report, &result.norms);
  } catch (const CheckEnded& ended) {
    report.Fail(ended.text);
  } catch (const std::exception& error) {
    report.Fail(absl::StrCat("the check itself failed: ", error.what()));
  }
  result.findings = report.findings();
  return result;
}

absl::Status RunTasks(const std::vector<Task>& tasks, const ProcessOptions& options,
                      const std::function<bool(size_t, TaskResult)>& done) {
  std::vector<std::unique_ptr<Child>> running;
  for (size_t next = 0; next < tasks.size() || !running.empty();) {
    while (next < tasks.size() && running.size() < static_cast<size_t>(options.parallel)) {
      running.push_back(std::make_unique<Child>(next));
      const absl::Status started = running.back()->Start(tasks[next++]);
      if (!started.ok()) return started;
    }
    std::vector<pollfd> events;
    for (const auto& child : running) child->AddTo(&events);
    poll(events.data(), events.size(), 10);
    for (size_t i = 0; i < running.size();) {
      running[i]->StopIfHung(options.timeout_seconds);
      TaskResult result;
      if (!running[i]->Reap(&result)) {
        ++i;
        continue;
      }
      const size_t task = running[i]->task();
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (!done(task, std::move(result))) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb::check
