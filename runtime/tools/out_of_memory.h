// Turns std::bad_alloc into a status, for calls that allocate in proportion to a model. Private to
// runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_OUT_OF_MEMORY_H_
#define PLUMB_RUNTIME_TOOLS_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/memory.h"

namespace plumb {

// What `body` returns, a Status or StatusOr; kResourceExhausted when there was no memory for it,
// which names `what` was being made: "the training program".
template <class Body>
auto OrOutOfMemory(absl::string_view what, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory for ", what, "; ", MemoryLimitText()));
  }
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_OUT_OF_MEMORY_H_
