// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "cli/signal_text.h"
#include "runtime/base/unfinished_paths.h"
#include "runtime/client/plumb_api.h"

namespace plumb::cli {
namespace {

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
