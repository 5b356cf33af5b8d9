// SPDX-License-Identifier: Apache-2.0
// Arguments of the functions of plumb.h for runs and studies. Private to runtime/runs.
#ifndef PLUMB_RUNTIME_RUNS_ARGUMENTS_H_
#define PLUMB_RUNTIME_RUNS_ARGUMENTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"

namespace plumb::runs {

// Returns the text, "" for NULL.
inline std::string GetText(const char* text) { return text == nullptr ? "" : text; }

// Returns an array of `count` texts or pointers. Errors: kInvalidArgument for NULL, also in it.
template <class To, class From>
absl::StatusOr<std::vector<To>> ToList(absl::string_view name, const From* array, size_t count) {
  PLUMB_RETURN_IF_ERROR(capi::CheckSize(absl::StrCat(name, "_count"), count, sizeof(From)));
  if (array == nullptr && count > 0) return capi::NullArgument(name);
  std::vector<To> list;
  for (size_t i = 0; i < count; ++i) {
    if (array[i] == nullptr) return capi::NullArgument(absl::StrCat(name, "[", i, "]"));
    list.emplace_back(array[i]);
  }
  return list;
}

}  // namespace plumb::runs

#endif  // PLUMB_RUNTIME_RUNS_ARGUMENTS_H_
