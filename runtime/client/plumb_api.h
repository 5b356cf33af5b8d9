// SPDX-License-Identifier: Apache-2.0
// The public C++ interface, plumb.hpp, for tools and the command line. Its classes are api::Model,
// api::Trainer and so on, because the runtime has classes of the same names; its errors are
// converted to statuses.
#ifndef PLUMB_RUNTIME_CLIENT_PLUMB_API_H_
#define PLUMB_RUNTIME_CLIENT_PLUMB_API_H_

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/memory.h"

#define PLUMB_HPP_INLINE
#include "plumb.hpp"

namespace plumb {

namespace api = PLUMB_HPP_NAMESPACE;

// Returns the error's code and message. Throws std::bad_alloc if memory ran out below plumb.h, as
// the tools themselves do; OrOutOfMemory converts both to a status with the purpose of the memory.
inline absl::Status ToStatus(const api::Error& error) {
  const absl::string_view message = error.what();
  if (error.code() == api::Code::kResourceExhausted && message == "out of memory") {
    throw std::bad_alloc();
  }
  return absl::Status(static_cast<absl::StatusCode>(error.code()), message);
}
inline absl::Status ToStatus(const api::Result<void>& result) {
  return result.ok() ? absl::OkStatus() : ToStatus(result.error());
}
template <class T>
absl::StatusOr<T> ToStatus(api::Result<T> result) {
  if (!result.ok()) return ToStatus(result.error());
  return *std::move(result);
}
inline absl::Status ToStatus(absl::Status status) { return status; }
template <class T>
absl::StatusOr<T> ToStatus(absl::StatusOr<T> result) {
  return result;
}

// Returns the result of `body`, a Status, StatusOr or api::Result, as a Status or StatusOr. Errors:
// also kResourceExhausted if memory ran out, with `what`, the object under construction: "the
// training program".
template <class Body>
auto OrOutOfMemory(absl::string_view what, const Body& body) -> decltype(ToStatus(body())) {
  try {
    return ToStatus(body());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory for ", what, "; ", MemoryLimitText()));
  }
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_PLUMB_API_H_
