// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumb {

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

std::string ErrnoText(int error) {
  const char* limit = error == EFBIG    ? " (the file size limit, ulimit -f, or the file system's)"
                      : error == EMFILE ? " (ulimit -n)"
                      : error == ENOMEM ? " (ulimit -v, or the machine's memory)"
                                        : "";
  return absl::StrCat(std::strerror(error), limit);
}

}  // namespace plumb
