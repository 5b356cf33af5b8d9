// SPDX-License-Identifier: Apache-2.0
// Signals that end the program: SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). They
// remove unfinished files and end it immediately. While an Interrupts lives, the first one only
// requests a stop, which the caller checks between two steps; the second one ends the process,
// after a message about what it was waiting for. So does a plugin call that lasts kGraceSeconds
// after the first one.
#ifndef PLUMB_CLI_INTERRUPT_H_
#define PLUMB_CLI_INTERRUPT_H_

#include <csignal>

namespace plumb::cli {

// Seconds that a plugin call may last after the first signal. This is far longer than any call
// takes, which covers some rows of one step. A step, a validation or a checkpoint may take longer;
// those are waited for.
inline constexpr unsigned kGraceSeconds = 10;

// Makes each of these signals remove unfinished files and directories before it ends the process in
// the default way. So do faults and abort(), after a message that names the norm plugin whose code
// the thread is in. Keeps a signal that the parent ignores (nohup) and a sanitizer's handler. To be
// called by main.
void HandleEndingSignals();

// Scope in which the first signal only sets requested(). At most one may exist, because signal
// handlers belong to the process.
class Interrupts {
 public:
  // `waiting_for`: the work that the caller finishes before it checks again, such as "the training
  // step".
  explicit Interrupts(const char* waiting_for);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool requested() const;
  // Changes the text of the work that is waited for. Requires: a string literal.
  void WaitingFor(const char* waiting_for);

 private:
  struct sigaction previous_int_, previous_term_, previous_hup_, previous_alarm_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_INTERRUPT_H_
