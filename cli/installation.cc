// SPDX-License-Identifier: Apache-2.0
#include "cli/installation.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <system_error>

namespace plumb::cli {

std::string OwnDirectory() {
  char path[PATH_MAX + 1] = "";
  std::string own;
  if (readlink("/proc/self/exe", path, PATH_MAX) >= 0) {
    own = path;
  } else if (const auto begun = getauxval(AT_EXECFN); begun != 0) {  // without /proc
    std::error_code error;
    own = std::filesystem::canonical(reinterpret_cast<const char*>(begun), error).string();
    if (error) return "";
  }
  if (own.empty()) return "";
  return own.substr(0, own.rfind('/'));
}

std::string InstallPrefix() {
  const std::string own = OwnDirectory(), below = "/" PLUMB_BIN_DIR;
  if (own.size() <= below.size() || own.compare(own.size() - below.size(), below.size(), below)) {
    return "";
  }
  const std::string prefix = own.substr(0, own.size() - below.size());
  std::error_code error;
  const bool installed = std::filesystem::is_directory(prefix + "/" PLUMB_DATA_DIR, error);
  return installed ? prefix : "";
}

std::string DocDirectory() {
  const std::string prefix = InstallPrefix();
  // PLUMB_DOC_DIR is relative, or absolute if the packager says so.
  return prefix.empty() ? "" : (std::filesystem::path(prefix) / PLUMB_DOC_DIR).string();
}

}  // namespace plumb::cli
