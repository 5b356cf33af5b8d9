// SPDX-License-Identifier: Apache-2.0
// Guarded: the only way to call a plugin's code. The ABI forbids exceptions to leave a plugin; one
// that does becomes a status at the call, on its thread, so that it never reaches a parallel region
// or a destructor. The thread's record names the call while it runs (plugin_call.h). Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
#define PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb {

// Returns the error for the exception that is being handled and that left the plugin's `function`:
// kInternal "exception std::length_error left forward(): too long", with what() if that says more
// than the type, or kResourceExhausted for std::bad_alloc. Requires: the caller is in a catch
// block.
ABSL_ATTRIBUTE_NOINLINE ABSL_ATTRIBUTE_COLD absl::Status ExceptionLeft(const char* function);

// Runs call(), which calls the function that `record` names. The record covers the handling of an
// exception too, since what() is the plugin's code. Costs two stores if nothing is thrown.
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

// Runs call() for another function of the norm and file of the thread's current call.
template <class Call>
absl::Status Guarded(const char* function, const Call& call) {
  PluginCall record;
  if (const PluginCall* outer = CurrentPluginCall(); outer != nullptr) record = *outer;
  record.function = function;
  return Guarded(record, call);
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_GUARDED_CALL_H_
