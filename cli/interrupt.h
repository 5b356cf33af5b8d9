// SPDX-License-Identifier: Apache-2.0
// Signals that end the program: Ctrl-C, SIGTERM and SIGHUP (a terminal that goes away). They end it
// at once, without what it has not finished writing. While an Interrupts lives they are a wish to
// stop that the caller looks at between two steps. The second one kills, and says what was waited
// for. So does a plugin that has not returned from one call kGraceSeconds after the first.
#ifndef PLUMB_CLI_INTERRUPT_H_
#define PLUMB_CLI_INTERRUPT_H_

#include <csignal>

namespace plumb::cli {

// Far longer than any call of a plugin, which is for some rows of one step. A step, a validation or
// a checkpoint may take longer than this, and is waited for.
inline constexpr unsigned kGraceSeconds = 10;

// From now on each of these signals removes the files and directories that are not finished, and
// then ends the process as it would have without. One that the parent ignores (nohup) stays
// ignored. For main.
void RemoveUnfinishedOnSignals();

// While one lives, the first signal only sets requested(). At most one at a time: signal handlers
// belong to the process.
class Interrupts {
 public:
  // `waiting_for`: what the caller finishes before it looks again, "the training step".
  explicit Interrupts(const char* waiting_for);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool requested() const;
  // From now on the caller finishes this instead; REQUIRES: a literal.
  void WaitingFor(const char* waiting_for);

 private:
  struct sigaction previous_int_, previous_term_, previous_hup_, previous_alarm_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_INTERRUPT_H_
