// SPDX-License-Identifier: Apache-2.0
// Guarded: the one way into a plugin's code. The ABI forbids that an exception leaves a plugin, and
// a plugin may do it all the same: what is thrown ends here, as a status, on the thread and at the
// place of the call, so that it never reaches a parallel region or a destructor. While the call
// runs, the thread's record says so (plugin_call.h). Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
#define PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb {

// kInternal "exception std::bad_alloc left forward()", with what() where it says more. REQUIRES: an
// exception is being handled.
ABSL_ATTRIBUTE_NOINLINE ABSL_ATTRIBUTE_COLD absl::Status ExceptionLeft(const char* function);

// Runs call(), which calls the function that `record` names. The record outlives the exception,
// since what() is the plugin's code too. Costs two stores when nothing is thrown.
template <class Call>
absl::Status Guarded(const PluginCall& record, const Call& call) {
  const PluginCallScope scope(&record);
  try {
    call();
  } catch (...) {
    return ExceptionLeft(record.function);
  }
  return absl::OkStatus();
}

// The same for another function of the norm and file that the thread is already in a call of.
template <class Call>
absl::Status Guarded(const char* function, const Call& call) {
  PluginCall record;
  if (const PluginCall* outer = CurrentPluginCall(); outer != nullptr) record = *outer;
  record.function = function;
  return Guarded(record, call);
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
