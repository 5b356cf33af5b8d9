// Every hot function of a norm, called on memory that was made beforehand, so that between the
// start and the end of a call nothing of the checker's own happens in the thread.
#ifndef PLUMB_PLUGINS_CHECK_HOT_CALLS_H_
#define PLUMB_PLUGINS_CHECK_HOT_CALLS_H_

#include "plugins/check/norm_run.h"

namespace plumb::check {

// Called before and after each call.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  virtual void Before() = 0;
  virtual void After(const char* function) = 0;  // "forward"
};

// Calls, on all rows of `run` and then on ranges of them, in training and in evaluation, the
// functions of the norm: statistics for a cross-row norm, forward, backward, and backward
// accumulating. Statuses are not looked at.
void MakeHotCalls(NormRun* run, CallWatcher* watcher);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_HOT_CALLS_H_
