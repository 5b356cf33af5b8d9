#include "plugins/check/fresh_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "plugins/check/calls.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

constexpr uint64_t kNoAnswer = ~uint64_t{0};

// Of a socket whose other end may be gone: false then.
bool ReadBytes(int fd, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteBytes(int fd, const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool Send(int fd, const std::string& text) {
  const uint64_t size = text.size();
  return WriteBytes(fd, &size, sizeof(size)) && WriteBytes(fd, text.data(), text.size());
}

std::optional<std::string> Receive(int fd) {
  uint64_t size = 0;
  if (!ReadBytes(fd, &size, sizeof(size)) || size == kNoAnswer) return std::nullopt;
  std::string text(size, '\0');
  if (!ReadBytes(fd, text.data(), size)) return std::nullopt;
  return text;
}

// The process that is forked from: it makes no call of the plugin itself.
[[noreturn]] void Serve(int host, const std::function<std::string(const std::string&)>& task) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A task that crashes is no finding of the check that asks.
  const int page = memfd_create("trace", MFD_CLOEXEC);
  if (page < 0 || ftruncate(page, sizeof(TracePage)) != 0 || !UseTracePage(page)) _exit(1);
  while (const std::optional<std::string> question = Receive(host)) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::string answer;
      try {
        answer = task(*question);
      } catch (const CheckEnded&) {
        _exit(1);
      }
      _exit(Send(host, answer) ? 0 : 1);
    }
    int status = 1;
    const bool answered = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    if (!answered) WriteBytes(host, &kNoAnswer, sizeof(kNoAnswer));
  }
  _exit(0);
}

}  // namespace

FreshProcess::FreshProcess(std::function<std::string(const std::string&)> task) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    Serve(ends[1], task);
  }
  close(ends[1]);
  socket_ = ends[0];
}

FreshProcess::~FreshProcess() {
  if (socket_ >= 0) close(socket_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<std::string> FreshProcess::Answer(const std::string& question) {
  if (pid_ <= 0 || !Send(socket_, question)) return std::nullopt;
  return Receive(socket_);
}

}  // namespace plumb::check
