// A file that is there whole or not at all.
#ifndef PLUMB_CLI_WRITE_FILE_H_
#define PLUMB_CLI_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {

// Writes `content` to a temporary beside `path`, syncs it, and renames it over `path`.
absl::Status WriteFileWhole(const std::string& path, absl::string_view content);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_WRITE_FILE_H_
