// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "runtime/base/unfinished_paths.h"
#include "runtime/client/plumb_api.h"

namespace plumb::cli {
namespace {

// Message that is built and written in a signal handler, where nothing may allocate. Lives on the
// handler's stack.
class SignalText {
 public:
  SignalText& Add(const char* text);  // drops what does not fit
  SignalText& Add(int64_t number);
  // Adds "forward() of the norm \"org.example.a\"", and its file on a separate line.
  SignalText& AddCall(const api::PluginCall& call);
  // Writes the text and a newline to stderr; on a terminal, starts a new line first.
  void Write();

 private:
  char text_[8192];  // enough for ids and a path
  size_t length_ = 0;
};

SignalText& SignalText::Add(const char* text) {
  while (*text != '\0' && length_ + 1 < sizeof(text_)) text_[length_++] = *text++;
  return *this;
}

SignalText& SignalText::Add(int64_t number) {
  char digits[24];
  char* at = digits + sizeof(digits);
  *--at = '\0';
  uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  do *--at = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (number < 0) *--at = '-';
  return Add(at);
}

SignalText& SignalText::AddCall(const api::PluginCall& call) {
  Add(call.function).Add("() of the norm \"").Add(call.norm).Add("\"");
  if (*call.file == '\0') return Add(", which is linked into this program");
  return Add("\nin ").Add(call.file).Add("\nsee: plumb plugin check ").Add(call.file);
}

void SignalText::Write() {
  struct termios terminal;
  // A progress line may be open on the terminal.
  if (tcgetattr(STDERR_FILENO, &terminal) == 0 && write(STDERR_FILENO, "\n", 1) != 1) return;
  text_[length_++] = '\n';
  for (size_t done = 0; done < length_;) {
    const ssize_t n = write(STDERR_FILENO, text_ + done, length_ - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

constexpr int kMaxCalls = 64;

// Globals, because a signal handler can access nothing else.
volatile std::sig_atomic_t stop_requested = 0;  // number of the signal that requested the stop
std::atomic<const char*> waited_for{""};
// Plugin calls that were in progress when RecordRunningCalls last ran.
api::PluginCall calls_before[kMaxCalls];
volatile std::sig_atomic_t n_calls_before = 0;

// Returns a call that has been in progress since RecordRunningCalls ran.
std::optional<api::PluginCall> CallStillRunning() {
  api::PluginCall now[kMaxCalls];
  const size_t n = api::PluginCalls(now);
  for (size_t i = 0; i < n; ++i) {
    for (int k = 0; k < n_calls_before; ++k) {
      const api::PluginCall& before = calls_before[k];
      if (before.thread == now[i].thread && before.number == now[i].number) return now[i];
    }
  }
  return std::nullopt;
}

void RecordRunningCalls() { n_calls_before = static_cast<int>(api::PluginCalls(calls_before)); }

// Ends the process by the signal's default action, after removing unfinished files.
void EndBySignal(int signal) {
  RemoveUnfinishedPaths();
  std::signal(signal, SIG_DFL);
  sigset_t just_this;
  sigemptyset(&just_this);
  sigaddset(&just_this, signal);
  sigprocmask(SIG_UNBLOCK, &just_this, nullptr);
  std::raise(signal);
}

void Kill(int signal, const std::optional<api::PluginCall>& call) {
  SignalText text;
  text.Add("ended while waiting for ").Add(waited_for.load());
  if (call) text.Add(", in ").AddCall(*call);
  text.Write();
  EndBySignal(signal);
}

extern "C" void OnEndingSignal(int signal) { EndBySignal(signal); }

extern "C" void OnFault(int signal) {
  SignalText text;
  if (const auto call = api::CurrentPluginCall()) {
    text.Add("error: signal ").Add(signal).Add(" in ").AddCall(*call);
    text.Write();
  } else if (signal == SIGBUS) {
    text.Add("error: SIGBUS: a file was truncated while it was in use");
    text.Write();
  }
  EndBySignal(signal);
}

extern "C" void RequestStop(int signal) {
  if (stop_requested != 0) Kill(signal, CallStillRunning());
  stop_requested = signal;
  RecordRunningCalls();
  alarm(kGraceSeconds);
}

extern "C" void EndGrace(int) {
  if (const auto call = CallStillRunning()) Kill(stop_requested, call);
  RecordRunningCalls();
  alarm(kGraceSeconds);
}

}  // namespace

void HandleEndingSignals() {
  const auto handle = [](int signal, void (*handler)(int)) {
    struct sigaction action = {}, before = {};
    action.sa_handler = handler;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {
      sigaction(signal, &action, nullptr);
    }
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, OnEndingSignal);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) handle(signal, OnFault);
}

Interrupts::Interrupts(const char* waiting_for) {
  stop_requested = 0;
  waited_for = waiting_for;
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  // SA_RESTART, so that a checkpoint being written does not fail with EINTR.
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) sigaddset(&action.sa_mask, signal);
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
  sigaction(SIGHUP, &action, &previous_hup_);
  // nohup ignores SIGHUP, so that the program continues without a terminal.
  if (previous_hup_.sa_handler == SIG_IGN) sigaction(SIGHUP, &previous_hup_, nullptr);
  action.sa_handler = EndGrace;
  sigaction(SIGALRM, &action, &previous_alarm_);
}

Interrupts::~Interrupts() {
  alarm(0);
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
  sigaction(SIGHUP, &previous_hup_, nullptr);
  sigaction(SIGALRM, &previous_alarm_, nullptr);
}

bool Interrupts::requested() const { return stop_requested != 0; }

void Interrupts::WaitingFor(const char* waiting_for) { waited_for = waiting_for; }

}  // namespace plumb::cli
