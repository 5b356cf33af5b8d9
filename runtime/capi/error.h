// SPDX-License-Identifier: Apache-2.0
// The border of plumb.h: conversion of statuses and exceptions to errors, and of options of any
// version to the current one. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_ERROR_H_
#define PLUMB_RUNTIME_CAPI_ERROR_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plumb.h"

namespace plumb::capi {

// Returns the code of `status`; sets *error unless `status` is OK or `error` is null.
plumb_status ToError(const absl::Status& status, plumb_error** error);
plumb_status OutOfMemory(plumb_error** error);
plumb_status Unexpected(const char* what, plumb_error** error);

// Runs `body` and returns its status; converts exceptions to errors.
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

// Returns kInvalidArgument: "runtime is NULL".
absl::Status NullArgument(absl::string_view name);

// Fails with kInvalidArgument for a NULL array, a negative count, and more elements than memory can
// hold. Every argument that counts elements is checked before the first one is read, so that no
// product with it overflows.
absl::Status CheckArray(absl::string_view name, const void* array, int64_t count,
                        size_t element_bytes);

// Returns an array of `count` elements. Errors: those of CheckArray.
template <class T>
absl::StatusOr<absl::Span<const T>> ToSpan(absl::string_view name, const T* array, int64_t count) {
  const absl::Status checked = CheckArray(name, array, count, sizeof(T));
  if (!checked.ok()) return checked;
  return absl::MakeConstSpan(array, static_cast<size_t>(count));
}

// Returns an array of `count` texts or pointers. Errors: those of CheckArray, and NULL in it.
template <class To, class From>
absl::StatusOr<std::vector<To>> ToList(absl::string_view name, const From* array, int64_t count) {
  const absl::StatusOr<absl::Span<const From>> span = ToSpan(name, array, count);
  if (!span.ok()) return span.status();
  std::vector<To> list;
  for (const From& element : *span) {
    if (element == nullptr) return NullArgument(absl::StrCat(name, "[", list.size(), "]"));
    list.emplace_back(element);
  }
  return list;
}

// Fails with kInvalidArgument if the size of a caller's struct is not set, or that of no version.
absl::Status CheckStructSize(absl::string_view name, uint32_t size);

// Returns `options`, with the fields beyond its struct_size set to 0; all 0 for NULL. Fails with
// kInvalidArgument if struct_size is not set, or if a caller with a newer header sets an unknown
// field.
template <class Options>
absl::StatusOr<Options> Complete(const Options* options) {
  static_assert(std::is_trivially_copyable<Options>::value, "options are plain");
  Options complete = {};
  complete.struct_size = sizeof(Options);
  if (options == nullptr) return complete;
  const size_t size = options->struct_size;
  const absl::Status has_size = CheckStructSize("options", options->struct_size);
  if (!has_size.ok()) return has_size;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(options);
  if (size > sizeof(Options) &&
      std::any_of(bytes + sizeof(Options), bytes + size, [](unsigned char c) { return c != 0; })) {
    return absl::InvalidArgumentError(
        "options: a field is set that this version of plumb does not know");
  }
  std::memcpy(&complete, options, std::min(size, sizeof(Options)));
  return complete;
}

// Returns the text, "" for NULL.
inline absl::string_view GetText(const char* text) { return text == nullptr ? "" : text; }

// Copies `from` as far as the caller's struct reaches.
template <class Result>
void CopyStruct(const Result& from, Result* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(Result)));
  to->struct_size = size;
}

// Fails with kInvalidArgument if an output is NULL or its struct_size is not set.
template <class Result>
absl::Status CheckOutput(absl::string_view name, const Result* to) {
  if (to == nullptr) return NullArgument(name);
  return CheckStructSize(name, to->struct_size);
}

// Copies a result to the caller's struct. Errors: those of CheckOutput.
template <class Result>
absl::Status CopyOut(const Result& from, absl::string_view name, Result* to) {
  const absl::Status status = CheckOutput(name, to);
  if (status.ok()) CopyStruct(from, to);
  return status;
}

// Writes elements get(0), get(1), .. of a list of `count` structs to an array of at most `capacity`
// structs of the caller, which have the struct_size of the first.
// Returns: `count`, or -1 if struct_size is not set.
template <class Element, class Get>
int64_t WriteList(size_t count, const Get& get, Element* to, int64_t capacity) {
  const auto total = static_cast<int64_t>(count);
  if (to == nullptr || capacity <= 0) return total;
  const uint32_t size = to->struct_size;  // the host's struct may have another version
  if (size < sizeof(size)) return -1;
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  for (size_t i = 0; i < static_cast<size_t>(std::min(total, capacity)); ++i) {
    auto* const element = reinterpret_cast<Element*>(bytes + i * size);
    element->struct_size = size;
    CopyStruct(get(i), element);
  }
  return total;
}

// Copies `from` to memory for plumb_free, ended with 0. `size` may be null. Errors:
// kInvalidArgument if `text` is null; kResourceExhausted.
absl::Status WriteText(absl::string_view from, char** text, size_t* size = nullptr);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_ERROR_H_
