// SPDX-License-Identifier: Apache-2.0
// A job for launch_test.sh and hosts.sh, in which one rank misbehaves while the others wait for it.
//
//   mpirun -n N launch_ranks GRACE_SECONDS WHAT [RANK]
//
// WHAT is what rank RANK does: error fails; stop and kill raise a signal; busy computes for three
// grace times. With loop, all ranks communicate repeatedly until one has received SIGUSR1. code
// ends with exit code 4. threads prints default_threads.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/launch.h"

namespace plumb {
namespace {

volatile std::sig_atomic_t signalled = 0;

void PrintLine(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

absl::StatusOr<int> Loop(Launch* launch) {
  std::signal(SIGUSR1, [](int) { signalled = 1; });
  std::string text(100000, 'x');
  for (int64_t rounds = 0;; ++rounds) {
    PLUMB_RETURN_IF_ERROR(Broadcast(launch->ranks(), 0, &text));
    PLUMB_ASSIGN_OR_RETURN(const bool stop, launch->Any(signalled != 0));
    if (stop) return 130;
    if (rounds == 10 && launch->is_first()) PrintLine("looping");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::StatusOr<int> Work(Launch* launch, const std::string& what, int rank, double grace) {
  if (what == "loop") return Loop(launch);
  if (what == "threads") {
    PrintLine(absl::StrCat("threads ", launch->default_threads()));
    return 0;
  }
  int number = 0;
  if (launch->rank() != rank) {
    PLUMB_RETURN_IF_ERROR(Receive(launch->ranks(), rank, kTagStudy, &number, sizeof(number)));
    return 0;
  }
  if (what == "error") return absl::NotFoundError("no file x");
  if (what == "stop") std::raise(SIGSTOP);
  if (what == "kill") std::raise(SIGKILL);
  if (what == "busy") std::this_thread::sleep_for(std::chrono::duration<double>(3 * grace));
  for (int to = 0; to < launch->size(); ++to) {
    if (to == rank) continue;
    PLUMB_RETURN_IF_ERROR(Send(launch->ranks(), to, kTagStudy, &number, sizeof(number)));
  }
  return what == "code" ? 4 : 0;
}

int Main(int argc, char** argv) {
  if (argc < 3) return 64;
  LaunchOptions options;
  options.grace_seconds = std::atof(argv[1]);
  options.print_error = [](const std::string& text) { PrintLine("error: " + text); };
  options.print_note = [](const std::string& text) { PrintLine("note: " + text); };
  const auto launch = Launch::Find(options);
  if (!launch.ok()) {
    if (Launch::LaunchedRank() == 0) options.print_error(std::string(launch.status().message()));
    return 65;
  }
  if ((*launch)->size() == 1) return 66;
  const absl::StatusOr<int> code =
      Work(launch->get(), argv[2], argc > 3 ? std::atoi(argv[3]) : 0, options.grace_seconds);
  return (*launch)->End(code.status(), code.ok() ? *code : 7);
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) { return plumb::Main(argc, argv); }
