// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace plumb {

std::map<std::string, FuzzFunction>& FuzzTargets() {
  static auto* const targets = new std::map<std::string, FuzzFunction>();
  return *targets;
}

MemoryFile::MemoryFile(absl::string_view content) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
  PLUMB_CHECK(fd_ >= 0, "no file in memory");
  while (!content.empty()) {
    const ssize_t written = write(fd_, content.data(), content.size());
    PLUMB_CHECK(written > 0, "cannot fill a file in memory");
    content.remove_prefix(static_cast<size_t>(written));
  }
  lseek(fd_, 0, SEEK_SET);
  path_ = absl::StrCat("/proc/self/fd/", fd_);
}

MemoryFile::~MemoryFile() { close(fd_); }

HostRuntime* FuzzRuntime() {
  static HostRuntime* const runtime = [] {
    api::RuntimeOptions options;
    options.plugin_path = PLUMB_TEST_PLUGIN_DIR;
    options.placement_path = PLUMB_SOURCE_DIR "/plugins/placements";
    options.use_environment = false;
    options.threads = 1;
    absl::StatusOr<std::unique_ptr<HostRuntime>> created = HostRuntime::Create(options);
    PLUMB_CHECK(created.ok(), "no runtime");
    return created->release();
  }();
  return runtime;
}

}  // namespace plumb
