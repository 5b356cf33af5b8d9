// SPDX-License-Identifier: Apache-2.0
// Early-return helpers over absl::Status. A user's error travels as a Status that carries its
// location ("pre.pbtxt:12:9: ..."); a programmer's error is a PLUMB_CHECK (base/check.h).
#ifndef PLUMB_RUNTIME_BASE_STATUS_H_
#define PLUMB_RUNTIME_BASE_STATUS_H_

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#define PLUMB_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status plumb_status_ = (expr); !plumb_status_.ok()) return plumb_status_; \
  } while (false)

#define PLUMB_STATUS_CONCAT_INNER(a, b) a##b
#define PLUMB_STATUS_CONCAT(a, b) PLUMB_STATUS_CONCAT_INNER(a, b)
#define PLUMB_ASSIGN_OR_RETURN(lhs, expr) \
  PLUMB_ASSIGN_OR_RETURN_IMPL(PLUMB_STATUS_CONCAT(plumb_status_or_, __LINE__), lhs, expr)
#define PLUMB_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)

namespace plumb {

// Returns the status with `prefix` in front of its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// Returns the text for an errno and the limit that may cause it: "Too many open files (ulimit -n)".
std::string ErrnoText(int error);

// Returns the error of a system call on a file, kUnavailable "PATH: WHAT: <text for errno>".
inline absl::Status FileError(const std::string& path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", ErrnoText(errno)));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_STATUS_H_
