// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/process.h"

#include <fcntl.h>
#include <locale.h>
#include <sys/mman.h>
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
constexpr rlim_t kMaxFile = rlim_t{64} << 20;
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
    if (!norm.problem.empty()) norm.problem = "see M1: " + norm.problem;
    const std::string why = norm.problem.empty() ? Unavailable(*table) : "";
    if (!why.empty()) norm.problem = "not available on this machine: " + why;
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
  if (!task.check->of_file) {
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
  for (const ListedNorm& norm : result.norms) norms.push_back({norm.index, norm.id, norm.problem});
  return Json({findings, norms}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns false if the text is not a complete result.
bool FromText(const std::string& text, TaskResult* result) try {
  const Json json = Json::parse(text);
  for (const Json& each : json.at(0)) {
    result->findings.push_back({static_cast<Verdict>(each.at(0).get<int>()), each.at(1)});
  }
  for (const Json& each : json.at(1)) {
    result->norms.push_back({each.at(0), each.at(1), each.at(2)});
  }
  return true;
} catch (const Json::exception&) {
  return false;
}

// File in memory that a process and its parent share.
class SharedFile {
 public:
  SharedFile() : fd_(memfd_create("plumb-norm-check", MFD_CLOEXEC)) {}
  ~SharedFile() { close(fd_); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  int fd() const { return fd_; }
  // Returns the first `max` bytes of what was written.
  std::string Text(size_t max) const {
    std::string text(max, '\0');
    const ssize_t n = pread(fd_, text.data(), max, 0);
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }

 private:
  const int fd_;
};

[[noreturn]] void RunChild(const Task& task, TracePage* page, int findings, int printed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer maps terabytes
  Limit(RLIMIT_AS, kAddressSpace);  // checks may raise it, up to the parent's limit
#endif
  Limit(RLIMIT_FSIZE, kMaxFile);  // a plugin may print without end
  std::signal(SIGXFSZ, SIG_IGN);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(printed, STDOUT_FILENO) < 0 ||
      dup2(printed, STDERR_FILENO) < 0) {
    _exit(127);
  }
  std::signal(SIGPIPE, SIG_DFL);
  UseTracePage(page);
  InstallCrashHandlers();
  const std::string text = ToText(Perform(task));
  const bool written =
      write(findings, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  // Skips the destructors of the plugin's library, which are not checked.
  _exit(written ? EXIT_SUCCESS : EXIT_FAILURE);
}

// -- In the parent --------------------------------------------------------------------------------

class Child {
 public:
  explicit Child(size_t task) : task_(task) { since_.fill(start_); }
  ~Child() {
    if (pid_ <= 0) return;
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns false if the system has no more processes or memory.
  bool Start(const Task& task) {
    if (page_ == nullptr || findings_.fd() < 0 || printed_.fd() < 0) return false;
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0) RunChild(task, page_.get(), findings_.fd(), printed_.fd());
    return pid_ > 0;
  }

  size_t task() const { return task_; }

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
    int status = 0;
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return false;
    }
    Kill();  // processes that the plugin started
    waitpid(std::exchange(pid_, -1), &status, 0);
    result->seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (hung_.empty() && status == 0 && FromText(findings_.Text(kMaxFindings), result)) return true;
    std::string death = hung_.empty() ? DescribeEnd(*page_, status) : hung_;
    std::string printed = printed_.Text(kMaxPrinted);
    while (!printed.empty() && printed.back() == '\n') printed.pop_back();
    if (!printed.empty()) absl::StrAppend(&death, "; it printed: ", printed);
    result->findings = {{Verdict::kFail, death}};
    result->point.assign(page_->point, strnlen(page_->point, sizeof(page_->point)));
    return true;
  }

 private:
  void Kill() const {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
  }

  const size_t task_;
  const Clock::time_point start_ = Clock::now();
  const TracePagePointer page_ = MakeSharedTracePage();
  const SharedFile findings_, printed_;
  pid_t pid_ = -1;
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
      if (running.back()->Start(tasks[next++])) continue;
      return absl::UnavailableError(
          absl::StrCat("no more processes or memory: ", std::strerror(errno)));
    }
    usleep(1000);
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
