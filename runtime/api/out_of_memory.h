// Turns std::bad_alloc into a status, for calls that allocate in proportion to a model. Private to
// runtime/api.
#ifndef PLUMB_RUNTIME_API_OUT_OF_MEMORY_H_
#define PLUMB_RUNTIME_API_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"

namespace plumb {

// What `body` returns, a Status or StatusOr; kResourceExhausted when there was no memory for it.
template <class Body>
auto OrOutOfMemory(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "out of memory: the model, its batch or its context is too large for this machine");
  }
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_API_OUT_OF_MEMORY_H_
