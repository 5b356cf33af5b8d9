// Guarded: the one way into a plugin's code. The ABI forbids that an exception leaves a plugin, and
// a plugin may do it all the same: what is thrown ends here, as a status, on the thread and at the
// place of the call, so that it never reaches a parallel region or a destructor. Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
#define PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_

#include "absl/base/attributes.h"
#include "absl/status/status.h"

namespace plumb {

// kInternal "exception std::bad_alloc left forward()", with what() where it says more. REQUIRES: an
// exception is being handled.
ABSL_ATTRIBUTE_NOINLINE ABSL_ATTRIBUTE_COLD absl::Status ExceptionLeft(const char* function);

// Runs call(), which calls the plugin's `function`. Costs nothing when nothing is thrown.
template <class Call>
absl::Status Guarded(const char* function, const Call& call) {
  try {
    call();
  } catch (...) {
    return ExceptionLeft(function);
  }
  return absl::OkStatus();
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
