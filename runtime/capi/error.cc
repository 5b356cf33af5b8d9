// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/error.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

struct plumb_error {
  plumb_status code = PLUMB_OK;
  std::string message;
  std::string file;  // "": the message does not begin with a location
  int32_t line = 0, column = 0;
};

namespace plumb::capi {
namespace {

// Returns the error for a failed allocation, whose message is short enough to need none. Never
// freed.
plumb_error* NoMemory() {
  static plumb_error error = {PLUMB_STATUS_RESOURCE_EXHAUSTED, "out of memory", "", 0, 0};
  return &error;
}

// Fills in file, line and column if the message begins with a location, "model.pbtxt:3:1: ...".
void FindPlace(plumb_error* error) {
  const absl::string_view message = error->message;
  for (size_t at = message.find(':'); at != absl::string_view::npos;
       at = message.find(':', at + 1)) {
    const size_t second = message.find(':', at + 1);
    if (second == absl::string_view::npos) return;
    const size_t third = message.find(':', second + 1);
    if (third == absl::string_view::npos) return;
    int32_t line, column;
    if (at == 0 || !absl::SimpleAtoi(message.substr(at + 1, second - at - 1), &line) ||
        !absl::SimpleAtoi(message.substr(second + 1, third - second - 1), &column)) {
      continue;
    }
    const absl::string_view file = message.substr(0, at);
    if (file.find('\n') != absl::string_view::npos) return;
    error->file = std::string(file);
    error->line = line;
    error->column = column;
    return;
  }
}

// Returns `code`, and sets *error if `error` is not null.
plumb_status SetError(plumb_status code, absl::string_view message, plumb_error** error) {
  if (error == nullptr) return code;
  try {
    auto* made = new plumb_error;
    *error = made;
    made->code = code;
    made->message = std::string(message);
    FindPlace(made);
  } catch (const std::bad_alloc&) {
    *error = NoMemory();
  }
  return code;
}

}  // namespace

plumb_status ToError(const absl::Status& status, plumb_error** error) {
  if (status.ok()) return PLUMB_OK;
  return SetError(static_cast<plumb_status>(status.code()), status.message(), error);
}

plumb_status OutOfMemory(plumb_error** error) {
  if (error != nullptr) *error = NoMemory();
  return PLUMB_STATUS_RESOURCE_EXHAUSTED;
}

plumb_status Unexpected(const char* what, plumb_error** error) {
  return SetError(PLUMB_STATUS_INTERNAL, what, error);
}

absl::Status NullArgument(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

absl::Status CheckArray(absl::string_view name, const void* array, int64_t count,
                        size_t element_bytes) {
  constexpr auto kMaxBytes = static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max());
  if (count < 0 || static_cast<size_t>(count) > kMaxBytes / element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": there cannot be ", count,
                                                   " elements: it is negative or exceeds memory"));
  }
  return array == nullptr && count > 0 ? NullArgument(name) : absl::OkStatus();
}

absl::Status CheckStructSize(absl::string_view name, uint32_t size) {
  constexpr uint32_t kMaxSize = 4096;  // no version of a struct is larger
  if (size >= sizeof(size) && size <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": struct_size is not set to sizeof the struct, it is ", size));
}

absl::Status WriteText(absl::string_view from, char** text, size_t* size) {
  if (text == nullptr) return NullArgument("text");
  auto* const made = static_cast<char*>(std::malloc(from.size() + 1));
  if (made == nullptr) return absl::ResourceExhaustedError("out of memory for the text");
  std::memcpy(made, from.data(), from.size());
  made[from.size()] = '\0';
  *text = made;
  if (size != nullptr) *size = from.size();
  return absl::OkStatus();
}

}  // namespace plumb::capi

plumb_status plumb_error_code(const plumb_error* error) {
  return error == nullptr ? PLUMB_OK : error->code;
}

const char* plumb_error_message(const plumb_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

int32_t plumb_error_location(const plumb_error* error, const char** file, int32_t* line,
                             int32_t* column) {
  if (error == nullptr || error->file.empty()) return 0;
  if (file != nullptr) *file = error->file.c_str();
  if (line != nullptr) *line = error->line;
  if (column != nullptr) *column = error->column;
  return 1;
}

void plumb_error_free(plumb_error* error) {
  if (error != plumb::capi::NoMemory()) delete error;
}

void plumb_free(void* memory) { std::free(memory); }
