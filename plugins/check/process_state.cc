// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/process_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plugins/check/float_state.h"

namespace plumb::check {
namespace {

constexpr char kThreads[] = "the number of threads";

using States = std::map<std::string, std::string>;

void AddSignals(States* values) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    const char* name = sigabbrev_np(signal);
    const std::string what = name == nullptr ? absl::StrCat(signal) : absl::StrCat("SIG", name);
    (*values)[absl::StrCat("the handler of ", what)] =
        action.sa_handler == SIG_DFL ? "the default"
        : action.sa_handler == SIG_IGN
            ? "to ignore it"
            : absl::StrFormat("the function at %p", reinterpret_cast<void*>(action.sa_handler));
    (*values)[absl::StrCat("the mask of ", what)] =
        sigismember(&blocked, signal) == 1 ? "blocked" : "open";
  }
}

// Reads the umask and the number of threads from /proc/self/status, because umask() would change
// the umask for a moment.
void AddStatusLines(States* values) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const size_t colon = line.find(":\t");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    if (key == "Umask") (*values)["the umask"] = line.substr(colon + 2);
    if (key == "Threads") (*values)[kThreads] = line.substr(colon + 2);
  }
}

void AddDescriptors(States* values) {
  DIR* raw = opendir("/proc/self/fd");
  if (raw == nullptr) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(raw, &closedir);
  const std::string own = absl::StrCat(dirfd(directory.get()));
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] == '.' || own == entry->d_name) continue;
    char target[PATH_MAX + 1] = "";
    const std::string link = absl::StrCat("/proc/self/fd/", entry->d_name);
    if (readlink(link.c_str(), target, PATH_MAX) < 0) continue;
    (*values)[absl::StrCat("file descriptor ", entry->d_name)] = target;
  }
}

void AddEnvironment(States* values) {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const char* equals = std::strchr(*variable, '=');
    if (equals == nullptr) continue;
    (*values)[absl::StrCat("the environment's ",
                           std::string(*variable, static_cast<size_t>(equals - *variable)))] =
        equals + 1;
  }
}

}  // namespace

ProcessState ProcessState::Take() {
  ProcessState state;
  States* values = &state.values_;
  (*values)["the floating-point control (MXCSR, FPCR)"] = FloatState::Current().Text();
  AddSignals(values);
  AddStatusLines(values);
  AddDescriptors(values);
  AddEnvironment(values);
  const char* locale = std::setlocale(LC_ALL, nullptr);
  (*values)["the locale"] = locale == nullptr ? "" : locale;
  (*values)["the thread's locale"] =
      uselocale(nullptr) == LC_GLOBAL_LOCALE ? "the process's" : "one of its own";
  (*values)["the decimal point"] = std::localeconv()->decimal_point;
  char directory[PATH_MAX] = "";
  (*values)["the working directory"] =
      getcwd(directory, sizeof(directory)) == nullptr ? "" : directory;
  return state;
}

std::vector<std::string> ProcessState::ChangesTo(const ProcessState& after) const {
  std::vector<std::string> changes;
  for (const auto& [what, value] : values_) {
    const auto now = after.values_.find(what);
    if (now == after.values_.end()) {
      changes.push_back(absl::StrCat(what, " is gone, was ", value));
    } else if (now->second != value) {
      changes.push_back(absl::StrCat(what, " is ", now->second, ", was ", value));
    }
  }
  for (const auto& [what, value] : after.values_) {
    if (values_.count(what) == 0) changes.push_back(absl::StrCat(what, " is new: ", value));
  }
  return changes;
}

std::vector<std::string> ProcessState::ChangesSince() const {
  constexpr int kTries = 200;
  std::vector<std::string> changes = ChangesTo(Take());
  const auto is_of_threads = [](const std::string& change) {
    return change.rfind(kThreads, 0) == 0;
  };
  for (int i = 0; i < kTries; ++i) {
    if (std::none_of(changes.begin(), changes.end(), is_of_threads)) break;
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
    if (saved_[fd] < 0) continue;
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
  std::vector<std::string> changes = before_.ChangesSince();
  if (printed > 0) changes.push_back(absl::StrCat(printed, " bytes are printed"));
  return absl::StrJoin(changes, "; ");
}

}  // namespace plumb::check
