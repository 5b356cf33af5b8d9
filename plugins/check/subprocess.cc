#include "plugins/check/subprocess.h"

#include <fcntl.h>
#include <poll.h>
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
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/trace.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxFindings = size_t{4} << 20;
constexpr size_t kMaxPrinted = size_t{16} << 10;
constexpr double kWholeCheck = 30;  // times the limit for one call
#if !defined(__SANITIZE_ADDRESS__)
constexpr rlim_t kAddressSpace = rlim_t{16} << 30;
#endif

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

absl::Status SystemError(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

struct Pipe {
  Descriptor read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("no pipe");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// The trace page as the parent sees it.
class SharedPage {
 public:
  static absl::StatusOr<SharedPage> Create() {
    Descriptor fd(memfd_create("plumb-norm-check-trace", MFD_CLOEXEC));
    if (fd.get() < 0 || ftruncate(fd.get(), sizeof(TracePage)) != 0)
      return SystemError("no memory");
    void* memory =
        mmap(nullptr, sizeof(TracePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) return SystemError("no memory");
    SharedPage page;
    page.fd_ = std::move(fd);
    page.page_.reset(static_cast<TracePage*>(memory));
    return page;
  }
  int fd() const { return fd_.get(); }
  const TracePage& operator*() const { return *page_; }

 private:
  struct Unmap {
    void operator()(TracePage* page) const { munmap(page, sizeof(TracePage)); }
  };
  Descriptor fd_;
  std::unique_ptr<TracePage, Unmap> page_;
};

struct Child {
  size_t job = 0;
  pid_t pid = -1;
  SharedPage page;
  Descriptor findings, printed;
  Clock::time_point start;
  // What each thread was doing when it was last seen to do something else.
  std::array<uint64_t, kTraceSlots> sequence{};
  std::array<Clock::time_point, kTraceSlots> since{};
  std::string stopped;  // why it was killed
  Ended ended;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Checks may raise it, up to what this process has.
void Limit(__rlimit_resource resource, rlim_t most) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(resource, &limit);
}

// Between fork and exec: only what is safe there.
[[noreturn]] void BecomeChild(char* const* arguments, int findings, int trace, int printed) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__)  // which maps terabytes
  Limit(RLIMIT_AS, kAddressSpace);
#endif
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(printed, STDOUT_FILENO) < 0 ||
      dup2(printed, STDERR_FILENO) < 0) {
    _exit(127);
  }
  fcntl(findings, F_SETFD, 0);
  fcntl(trace, F_SETFD, 0);
  std::signal(SIGPIPE, SIG_DFL);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

absl::StatusOr<std::unique_ptr<Child>> Start(size_t job, const std::vector<std::string>& words) {
  auto child = std::make_unique<Child>();
  child->job = job;
  PLUMB_ASSIGN_OR_RETURN(child->page, SharedPage::Create());
  PLUMB_ASSIGN_OR_RETURN(Pipe findings, MakePipe());
  PLUMB_ASSIGN_OR_RETURN(Pipe printed, MakePipe());
  std::vector<std::string> all = {"plumb-norm-check", kChildWord};
  all.insert(all.end(), words.begin(), words.end());
  all.push_back(absl::StrCat(findings.write.get()));
  all.push_back(absl::StrCat(child->page.fd()));
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  child->start = Clock::now();
  child->since.fill(child->start);
  child->pid = fork();
  if (child->pid < 0) return SystemError("no process");
  if (child->pid == 0) {
    BecomeChild(arguments.data(), findings.write.get(), child->page.fd(), printed.write.get());
  }
  child->findings = std::move(findings.read);
  child->printed = std::move(printed.read);
  return child;
}

// Takes what is there, keeps at most `most` bytes of it all; closes at the end of the stream.
void Drain(Descriptor* from, size_t most, std::string* to) {
  char buffer[16 << 10];
  while (from->get() >= 0) {
    const ssize_t n = read(from->get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return from->Close();
    to->append(buffer, std::min(static_cast<size_t>(n), most - std::min(most, to->size())));
  }
}

// Kills the child if one of its calls, or all of it, lasts too long.
void StopIfHung(const SubprocessOptions& options, Child* child) {
  if (!child->stopped.empty()) return;
  const Clock::time_point now = Clock::now();
  const double limit = options.timeout_seconds;
  std::string why;
  for (int i = 0; i < kTraceSlots; ++i) {
    const TraceSlot& slot = (*child->page).slots[i];
    const uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
    if (sequence != child->sequence[i]) {
      child->sequence[i] = sequence;
      child->since[i] = now;
    } else if (sequence % 2 == 1 && SecondsSince(child->since[i]) > limit) {
      why =
          absl::StrFormat("does not return from %s: stopped after %g s", DescribeCall(slot), limit);
    }
  }
  if (why.empty() && SecondsSince(child->start) > kWholeCheck * limit) {
    why = absl::StrFormat("takes longer than %g s: stopped", kWholeCheck * limit);
  }
  if (why.empty()) return;
  child->stopped = std::move(why);
  kill(-child->pid, SIGKILL);
  kill(child->pid, SIGKILL);
}

// Ends a child whose findings nobody wants.
void Kill(const Child* child) {
  kill(-child->pid, SIGKILL);
  kill(child->pid, SIGKILL);
  while (waitpid(child->pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Has the child ended? Then fills child->ended.
bool Reap(Child* child) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  kill(-child->pid, SIGKILL);  // whatever the plugin started
  int status = 0;
  while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  Drain(&child->findings, kMaxFindings, &child->ended.findings);
  Drain(&child->printed, kMaxPrinted, &child->ended.printed);
  child->ended.seconds = SecondsSince(child->start);
  const std::string running = DescribeRunning(*child->page);
  child->ended.last_call = running;
  const TracePage& page = *child->page;
  child->ended.point.assign(page.point, strnlen(page.point, sizeof(page.point)));
  child->ended.stopped = !child->stopped.empty();
  if (!child->stopped.empty()) {
    child->ended.death = child->stopped;
  } else if (WIFSIGNALED(status)) {
    child->ended.death = DescribeCrash(*child->page, WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    child->ended.death = absl::StrCat("ended the process with exit status ", WEXITSTATUS(status),
                                      running.empty() ? "" : " during ", running);
  }
  return true;
}

void WaitABit(const std::vector<std::unique_ptr<Child>>& children) {
  std::vector<pollfd> events;
  for (const auto& child : children) {
    for (const int fd : {child->findings.get(), child->printed.get()}) {
      if (fd >= 0) events.push_back({fd, POLLIN, 0});
    }
  }
  poll(events.data(), events.size(), 10);
}

}  // namespace

absl::Status RunChildren(const std::vector<std::vector<std::string>>& jobs,
                         const SubprocessOptions& options,
                         const std::function<bool(size_t, Ended)>& done) {
  std::vector<std::unique_ptr<Child>> running;
  size_t next = 0;
  absl::Status problem;
  while (next < jobs.size() || !running.empty()) {
    while (problem.ok() && next < jobs.size() &&
           running.size() < static_cast<size_t>(options.parallel)) {
      absl::StatusOr<std::unique_ptr<Child>> child = Start(next, jobs[next]);
      if (!child.ok()) {
        problem = child.status();
        break;
      }
      ++next;
      running.push_back(*std::move(child));
    }
    if (!problem.ok() && running.empty()) return problem;
    WaitABit(running);
    for (size_t i = 0; i < running.size();) {
      Child* child = running[i].get();
      Drain(&child->findings, kMaxFindings, &child->ended.findings);
      Drain(&child->printed, kMaxPrinted, &child->ended.printed);
      StopIfHung(options, child);
      if (!Reap(child)) {
        ++i;
        continue;
      }
      const bool more = done(child->job, std::move(child->ended));
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (more) continue;
      for (const auto& other : running) Kill(other.get());
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb::check
