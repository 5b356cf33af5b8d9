// SPDX-License-Identifier: Apache-2.0
// What is at the border of plumb.h: statuses and exceptions become errors, options of any age
// become this version's. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_ERROR_H_
#define PLUMB_RUNTIME_CAPI_ERROR_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb.h"

namespace plumb::capi {

// The code of `status`, with an error in *error if both want one.
plumb_status ToError(const absl::Status& status, plumb_error** error);
plumb_status OutOfMemory(plumb_error** error);
plumb_status Unexpected(const char* what, plumb_error** error);

// The status of `body`; nothing is thrown through.
template <class Body>
plumb_status Guard(plumb_error** error, const Body& body) {
  try {
    return ToError(body(), error);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(error);
  } catch (const std::exception& thrown) {
    return Unexpected(thrown.what(), error);
  } catch (...) {
    return Unexpected("an exception", error);
  }
}

// kInvalidArgument: "runtime is NULL".
absl::Status NullArgument(absl::string_view name);

// Fails with kInvalidArgument for more elements of so many bytes than an array can have, as for -1
// in a size_t. Every argument that counts what a pointer points to is checked by this before the
// first element is read, so that no product of it overflows.
absl::Status CheckSize(absl::string_view name, size_t size, size_t element_bytes = 1);

// `options` as far as they reach, the rest 0; NULL: all 0. kInvalidArgument when struct_size is not
// set, or when a caller of a newer header sets what this version does not know.
template <class Options>
absl::StatusOr<Options> Complete(const Options* options) {
  static_assert(std::is_trivially_copyable<Options>::value, "options are plain");
  Options complete = {};
  complete.struct_size = sizeof(Options);
  if (options == nullptr) return complete;
  const size_t size = options->struct_size;
  if (size < sizeof(size_t)) {
    return absl::InvalidArgumentError("options: struct_size is not set to sizeof the struct");
  }
  constexpr size_t kMostSize = 4096;  // of any version's struct: more is no sizeof
  if (size > kMostSize) {
    return absl::InvalidArgumentError("options: struct_size is not sizeof the struct");
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(options);
  if (size > sizeof(Options) &&
      std::any_of(bytes + sizeof(Options), bytes + size, [](unsigned char c) { return c != 0; })) {
    return absl::InvalidArgumentError(
        "options: a field is set that this version of plumb does not know");
  }
  std::memcpy(&complete, options, std::min(size, sizeof(Options)));
  return complete;
}

// As much of `from` as the caller's struct has room for.
template <class Result>
void Give(const Result& from, Result* to) {
  const size_t size = to->struct_size;
  std::memcpy(to, &from, std::min(size, sizeof(Result)));
  to->struct_size = size;
}

// A text for a caller's buffer: cut, ended with 0.
void GiveText(absl::string_view text, char* buffer, size_t capacity, size_t* needed);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_ERROR_H_
