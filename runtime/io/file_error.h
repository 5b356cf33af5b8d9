// The error of a system call on a file.
#ifndef PLUMB_RUNTIME_IO_FILE_ERROR_H_
#define PLUMB_RUNTIME_IO_FILE_ERROR_H_

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status.h"

namespace plumb {

// kUnavailable: "PATH: WHAT: " and what errno says.
inline absl::Status FileError(const std::string& path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", ErrnoText(errno)));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_IO_FILE_ERROR_H_
