#include "cli/open_file.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/output.h"

namespace plumb::cli {
namespace {

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool CanOpenFiles() { return StdoutIsTerminal() && (IsSet("DISPLAY") || IsSet("WAYLAND_DISPLAY")); }

bool OpenFile(const std::string& path) {
  std::error_code error;
  // From the root, so that it is taken neither for an option nor for an address.
  std::string whole = std::filesystem::absolute(path, error).string();
  if (error) return false;
  char program[] = "xdg-open";
  char* arguments[] = {program, whole.data(), nullptr};

  // What a browser says about itself is not for this terminal, nor is Ctrl-C here for the browser.
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&files) != 0) return false;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&files);
    return false;
  }
  bool ready = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID) == 0;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ready = ready && posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0) == 0;
  }
  pid_t child = 0;
  const bool started =
      ready && posix_spawnp(&child, program, &files, &attributes, arguments, environ) == 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return started;
}

}  // namespace plumb::cli
