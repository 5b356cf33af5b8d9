// From a plumb_runtime to the plumb::Runtime behind it: for what does not stand on plumb.h yet.
// Internal to plumb: runtime/tools, of the modules, may include it.
#ifndef PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_
#define PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_

#include "plumb.h"
#include "runtime/api/runtime.h"

namespace plumb::capi {

// The runtime behind a handle, which it lives as long as.
Runtime* InternalRuntime(plumb_runtime* runtime);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_SHARED_RUNTIME_H_
