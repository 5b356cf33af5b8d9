// Interrupts: Ctrl-C, SIGTERM and SIGHUP (a terminal that goes away) as a wish to stop that the
// caller looks at between two steps. The second one kills, as if nobody had listened.
#ifndef PLUMB_CLI_INTERRUPT_H_
#define PLUMB_CLI_INTERRUPT_H_

#include <csignal>

namespace plumb::cli {

// While one lives, the first signal only sets requested(). At most one at a time: signal handlers
// belong to the process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool requested() const;

 private:
  struct sigaction previous_int_, previous_term_, previous_hup_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_INTERRUPT_H_
