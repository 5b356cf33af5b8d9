// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/state.h"

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace plumb::check {
namespace {

#if defined(__SSE__)
constexpr uint64_t kFlush = 0x8040;  // FTZ, DAZ
#else
constexpr uint64_t kFlush = 1 << 24;  // FPCR.FZ
#endif

constexpr char kThreads[] = "the number of threads";

}  // namespace

uint64_t FloatControl() {
  uint64_t control = 0;
#if defined(__SSE__)
  constexpr uint64_t kFlags = 0x3f;  // sticky flags, raised by arithmetic
  control = _mm_getcsr() & ~kFlags;
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(control));
#endif
  return control;
}

void SetFloatControl(uint64_t control) {
#if defined(__SSE__)
  _mm_setcsr(static_cast<unsigned>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(control));
#else
  (void)control;
#endif
}

ScopedFlushing::ScopedFlushing(bool flush) : before_(FloatControl()) {
  SetFloatControl(flush ? before_ | kFlush : before_ & ~kFlush);
}

std::string NameOfSignal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

ProcessState ProcessState::Take() {
  ProcessState state;
  std::map<std::string, std::string>& values = state.values_;
  values["the floating-point control (MXCSR, FPCR)"] = absl::StrFormat("%#x", FloatControl());
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    values["the handler of " + NameOfSignal(signal)] =
        absl::StrFormat("%p%s", reinterpret_cast<void*>(action.sa_handler),
                        sigismember(&blocked, signal) == 1 ? ", blocked" : "");
  }
  // Read from /proc, because umask() would change the umask for a moment.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::string value = line.substr(line.find('\t') + 1);
    if (line.rfind("Umask:", 0) == 0) values["the umask"] = value;
    if (line.rfind("Threads:", 0) == 0) values[kThreads] = value;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::filesystem::path target = std::filesystem::read_symlink(entry, error);
    if (target.filename() == "fd") continue;  // the one by which this loop reads the directory
    values["file descriptor " + entry.path().filename().string()] = target;
  }
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    values["the environment's " + text.substr(0, equals)] = text.substr(equals + 1);
  }
  values["the locale"] = std::setlocale(LC_ALL, nullptr);
  values["the thread's locale"] =
      uselocale(nullptr) == LC_GLOBAL_LOCALE ? "the process's" : "one of its own";
  values["the working directory"] = std::filesystem::current_path(error);
  return state;
}

std::string ProcessState::ChangesTo(const ProcessState& after) const {
  std::string changes;
  const auto add = [&changes](const std::string& what, const std::string& change) {
    absl::StrAppend(&changes, changes.empty() ? "" : "; ", what, change);
  };
  for (const auto& [what, value] : values_) {
    const auto now = after.values_.find(what);
    if (now == after.values_.end()) {
      add(what, " is gone, was " + value);
    } else if (now->second != value) {
      add(what, absl::StrCat(" is ", now->second, ", was ", value));
    }
  }
  for (const auto& [what, value] : after.values_) {
    if (values_.count(what) == 0) add(what, " is new: " + value);
  }
  return changes;
}

std::string ProcessState::ChangesSince() const {
  constexpr int kTries = 200;
  std::string changes = ChangesTo(Take());
  for (int i = 0; i < kTries && changes.find(kThreads) != std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    changes = ChangesTo(Take());
  }
  return changes;
}

ProcessWatch::ProcessWatch() : memory_(memfd_create("printed", MFD_CLOEXEC)) {
  std::fflush(nullptr);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    saved_[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    dup2(memory_, fd);
  }
}

int64_t ProcessWatch::Restore() {
  if (memory_ < 0) return 0;
  std::fflush(nullptr);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    dup2(saved_[fd], fd);
    close(saved_[fd]);
  }
  struct stat info = {};
  const int64_t printed = fstat(memory_, &info) == 0 ? info.st_size : 0;
  close(memory_);
  memory_ = -1;
  return printed;
}

std::string ProcessWatch::End() {
  const int64_t printed = Restore();
  std::string changes = before_.ChangesSince();
  if (printed == 0) return changes;
  return absl::StrCat(changes, changes.empty() ? "" : "; ", printed, " bytes are printed");
}

}  // namespace plumb::check
