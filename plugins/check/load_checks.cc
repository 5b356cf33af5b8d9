// E4 to E6: what happens when the file is loaded. Each runs in a process that has not loaded it
// yet.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/elf_checks.h"
#include "plugins/check/guarded.h"
#include "plugins/check/library.h"
#include "plugins/check/process_state.h"
#include "plugins/check/silence.h"

namespace plumb::check {
namespace {

constexpr double kMostLoadSeconds = 0.1;
constexpr int kLoads = 3;

// Loads the file in a process of its own, since in one process a file is loaded once. Negative if
// that does not work.
double SecondsToLoad(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t pid = fork();  // no thread has been started yet
  if (pid == 0) {
    const auto before = std::chrono::steady_clock::now();
    const bool loaded = Open(path).ok();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    // In hundredths of the limit, which an exit status can hold.
    const double hundredths = std::min(took.count() / kMostLoadSeconds * 100, 250.0);
    _exit(loaded ? static_cast<int>(hundredths) : 255);
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 255) return -1;
  if (WEXITSTATUS(status) < 250) return WEXITSTATUS(status) * kMostLoadSeconds / 100;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void CheckLoads(const Subject& subject, Report* report) {
  const absl::StatusOr<void*> library = Open(subject.path);
  if (!library.ok()) return report->Fail(std::string(library.status().message()));
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) report->Fail(absl::StrCat("the file ", entry.status().message()));
}

void CheckLoadEffects(const Subject& subject, Report* report) {
  const ProcessState before = ProcessState::Take();
  Silence silence;
  const absl::StatusOr<void*> library = Open(subject.path);
  const int64_t printed = silence.End();
  if (!library.ok()) return report->Skip("it does not load (E4)");
  for (const std::string& change : before.ChangesSince()) {
    report->Fail(absl::StrCat("loading it changes the process: ", change));
  }
  if (printed > 0) report->Fail(absl::StrFormat("loading it prints %d bytes", printed));
}

void CheckLoadTime(const Subject& subject, Report* report) {
  double best = -1;
  for (int i = 0; i < kLoads && (best < 0 || best >= kMostLoadSeconds); ++i) {
    const double seconds = SecondsToLoad(subject.path);
    if (seconds < 0) return report->Skip("it does not load (E4)");
    best = best < 0 ? seconds : std::min(best, seconds);
  }
  if (best >= kMostLoadSeconds) {
    report->Warn(absl::StrFormat("takes %.0f ms to load; 100 ms is the most", best * 1000));
  }
}

}  // namespace plumb::check
