// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// -- In the process -------------------------------------------------------------------------------

void Limit(__rlimit_resource resource, rlim_t max) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(max, limit.rlim_max);
  setrlimit(resource, &limit);
}

[[noreturn]] void RunChild(const Task& task, TracePage* page, int printed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer maps terabytes
  Limit(RLIMIT_AS, rlim_t{16} << 30);
#endif
  Limit(RLIMIT_FSIZE, rlim_t{64} << 20);  // a plugin may print without end
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(printed, STDOUT_FILENO) < 0 ||
      dup2(printed, STDERR_FILENO) < 0) {
    _exit(127);
  }
  UseTracePage(page);
  InstallCrashHandlers();
  Json findings = Json::array();
  for (const Finding& finding : Perform(task).findings) {
    findings.push_back({static_cast<int>(finding.verdict), finding.text});
  }
  const std::string text = findings.dump(-1, ' ', false, Json::error_handler_t::replace);
  page->result_size = std::min(text.size(), sizeof(page->result));
  std::memcpy(page->result, text.data(), page->result_size);
  _exit(EXIT_SUCCESS);  // skips the destructors of the plugin's library, which are not checked
}

// -- In the parent --------------------------------------------------------------------------------

class Child {
 public:
  Child(size_t task, double timeout) : task_(task), timeout_(timeout) {
    void* memory =
        mmap(nullptr, sizeof(TracePage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page_ = memory == MAP_FAILED ? nullptr : static_cast<TracePage*>(memory);
  }
  ~Child() {
    if (pid_ > 0) Kill();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    if (page_ != nullptr) munmap(page_, sizeof(TracePage));
    close(printed_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns false if the system has no more processes or memory.
  bool Start(const Task& task) {
    if (page_ == nullptr || printed_ < 0) return false;
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0) RunChild(task, page_, printed_);
    return pid_ > 0;
  }

  size_t task() const { return task_; }

  // Kills the process if one of its calls, or its whole run, takes too long.
  void StopIfHung() {
    if (!hung_.empty()) return;
    const auto is_longer = [now = Clock::now()](Clock::time_point since, double seconds) {
      return std::chrono::duration<double>(now - since).count() > seconds;
    };
    const TraceSlot* inside = nullptr;
    uint64_t calls = 0;
    for (const TraceSlot& slot : page_->slots) {
      const uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
      calls += sequence;
      if (sequence % 2 == 1) inside = &slot;
    }
    if (calls != calls_) since_ = Clock::now();
    calls_ = calls;
    if (inside != nullptr && is_longer(since_, timeout_)) {
      hung_ = absl::StrFormat("does not return from %s: stopped after %g s",
                              DescribeCall(inside->call), timeout_);
    }
    constexpr double kWholeCheck = 30;
    if (hung_.empty() && is_longer(start_, kWholeCheck * timeout_)) {
      hung_ = absl::StrFormat("takes longer than %g s: stopped", kWholeCheck * timeout_);
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
    if (hung_.empty() && status == 0 && page_->result_size > 0) {
      const std::string text(page_->result, page_->result_size);
      const Json findings = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      for (size_t i = 0; findings.is_array() && i < findings.size(); ++i) {
        const auto verdict = static_cast<Verdict>(findings[i].at(0).get<int>());
        result->findings.push_back({verdict, findings[i].at(1)});
      }
      if (findings.is_array()) return true;
    }
    std::string death = hung_.empty() ? DescribeEnd(*page_, status) : hung_;
    const std::string printed = Printed();
    if (!printed.empty()) absl::StrAppend(&death, "; it printed: ", printed);
    result->findings = {{Verdict::kFail, death}};
    result->point = page_->point;
    return true;
  }

 private:
  void Kill() const {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
  }

  // Returns the first thousand bytes that the plugin has printed, without newlines at their end.
  std::string Printed() const {
    char text[1000];
    const ssize_t n = pread(printed_, text, sizeof(text), 0);
    std::string printed(text, n < 0 ? 0 : static_cast<size_t>(n));
    while (!printed.empty() && printed.back() == '\n') printed.pop_back();
    return printed;
  }

  const size_t task_;
  const double timeout_;
  const Clock::time_point start_ = Clock::now();
  TracePage* page_;  // shared with the process
  const int printed_ = memfd_create("plumb-norm-check", MFD_CLOEXEC);
  pid_t pid_ = -1;
  uint64_t calls_ = 0;                // calls and returns so far
  Clock::time_point since_ = start_;  // time when the latest was seen
  std::string hung_;                  // reason why it was killed
};

}  // namespace

TaskResult Perform(const Task& task) {
  // The environment of a user whose locale is not "C", so that a plugin that adopts it is detected.
  setenv("LC_ALL", "C.UTF-8", 1);
  Report report;
  try {
    task(&report);
  } catch (const CheckEnded& ended) {
    report.Fail(ended.text);
  } catch (const NotTried& not_tried) {
    report.Skip(not_tried.reason);
  } catch (const std::exception& error) {
    report.Fail(absl::StrCat("the check itself failed: ", error.what()));
  }
  return {report.findings(), "", 0};
}

absl::Status RunTasks(const std::vector<Task>& tasks, int parallel, double timeout,
                      const std::function<bool(size_t, TaskResult)>& done) {
  std::vector<std::unique_ptr<Child>> running;
  for (size_t next = 0; next < tasks.size() || !running.empty();) {
    while (next < tasks.size() && running.size() < static_cast<size_t>(parallel)) {
      running.push_back(std::make_unique<Child>(next, timeout));
      if (running.back()->Start(tasks[next++])) continue;
      return absl::UnavailableError(
          absl::StrCat("no more processes or memory: ", std::strerror(errno)));
    }
    usleep(1000);
    for (size_t i = 0; i < running.size();) {
      running[i]->StopIfHung();
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
