#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/tools/launch_impl.h"

namespace plumb {
namespace {

struct ProcessLine {
  std::string name;
  pid_t parent = 0;
};

// What /proc says of a process: "PID (NAME) STATE PARENT ...".
ProcessLine LineOf(pid_t pid) {
  ProcessLine line;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return line;
  line.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string state;
  rest >> state >> line.parent;
  return line;
}

// The mpirun that this process, or a script that it is of, was started by; 0 if it runs elsewhere.
pid_t Launcher() {
  pid_t pid = getppid();
  for (int depth = 0; depth < 8 && pid > 1; ++depth) {
    const ProcessLine line = LineOf(pid);
    for (const char* name : {"mpirun", "mpiexec", "orterun", "prterun"}) {
      if (line.name == name) return pid;
    }
    pid = line.parent;
  }
  return 0;
}

}  // namespace

void Launch::Impl::EndLauncherLater() {
  const pid_t pid = Launcher();
  if (pid == 0) return;
  const int launcher = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (launcher < 0) return;
  const pid_t child = fork();
  if (child > 0) waitpid(child, nullptr, 0);
  if (child != 0) {
    close(launcher);
    return;
  }
  // Nothing but system calls: the memory is that of a process with threads. A child of a child in a
  // session of its own, which is not ended with this rank, and without its pipes, at whose end
  // mpirun would wait.
  if (setsid() < 0 || fork() != 0) _exit(0);
  if (dup2(launcher, 0) != 0) _exit(0);
  for (int fd = 1; fd < 4096; ++fd) close(fd);
  sleep(15);
  const auto send = [](int sent) { return syscall(SYS_pidfd_send_signal, 0, sent, nullptr, 0); };
  if (send(SIGTERM) == 0) {
    sleep(3);
    send(SIGKILL);
  }
  _exit(0);
}

}  // namespace plumb
