#include "cli/interrupt.h"

namespace plumb::cli {
namespace {

// A handler sees nothing but globals.
volatile std::sig_atomic_t stop_requested = 0;

extern "C" void RequestStop(int) {
  stop_requested = 1;
  // signal() is async-signal-safe; the next of any kind ends the process.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, SIG_DFL);
}

}  // namespace

Interrupts::Interrupts() {
  stop_requested = 0;
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  action.sa_flags = SA_RESTART;  // a checkpoint that is being written is not to fail with EINTR
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
  sigaction(SIGHUP, &action, &previous_hup_);
  // nohup ignores it, and means to go on without a terminal.
  if (previous_hup_.sa_handler == SIG_IGN) sigaction(SIGHUP, &previous_hup_, nullptr);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
  sigaction(SIGHUP, &previous_hup_, nullptr);
}

bool Interrupts::requested() const { return stop_requested != 0; }

}  // namespace plumb::cli
