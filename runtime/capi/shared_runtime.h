// From a plumb::Runtime to a plumb_runtime: for what is handed the one and stands on plumb.h.
// Internal to plumb: runtime/tools, of the modules, may include it.
#ifndef PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_
#define PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_

#include "plumb.h"
#include "runtime/api/runtime.h"

namespace plumb::capi {

// A handle on `runtime`, with its norms, placements, engine and threads, which must outlive the
// handle and all that is created with it. There is no log: warnings stay with the runtime, for
// TakeWarnings. Freed by plumb_runtime_free.
plumb_runtime* ShareRuntime(Runtime* runtime);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_
