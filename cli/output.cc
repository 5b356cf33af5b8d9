// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/utf8.h"

namespace plumb::cli {
namespace {

constexpr char kReaderGone[] = "plumb/reader-gone";  // key of a payload of absl::Status

bool Set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

absl::Status WriteToStdout(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return absl::OkStatus();
  const int error = errno;
  absl::Status status =
      absl::UnavailableError(absl::StrCat("cannot write to stdout: ", std::strerror(error)));
  if (error == EPIPE) status.SetPayload(kReaderGone, absl::Cord());
  return status;
}

void WriteToStderr(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool Collide(const NamedFile& a, const NamedFile& b) {
  return !a.path.empty() && !b.path.empty() && IsSameFile(a.path, b.path);
}

}  // namespace

bool IsReaderGone(const absl::Status& status) { return status.GetPayload(kReaderGone).has_value(); }

int ToExitCode(const absl::Status& status) {
  if (IsReaderGone(status)) return kExitReaderGone;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kExitPlugin;
    case absl::StatusCode::kAborted:
      return kExitDiverged;
    default:
      return kExitFailed;
  }
}

absl::StatusOr<int> ExitOk(const absl::Status& status) {
  if (!status.ok()) return status;
  return kExitOk;
}

absl::Status PrintResult(absl::string_view text) { return WriteToStdout(PrintableText(text)); }

absl::Status PrintJson(const Json& json) {
  return WriteToStdout(
      PrintableJson(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
}

absl::Status PrintSample(absl::string_view text) {
  return StdoutIsTerminal() ? PrintResult(text) : WriteToStdout(text);
}

void PrintNote(absl::string_view text) { WriteToStderr(absl::StrCat(PrintableText(text), "\n")); }

void PrintError(absl::string_view message) {
  const bool color = StderrIsTerminal() && !Set("NO_COLOR");
  WriteToStderr(color ? "\x1b[1;31merror:\x1b[0m " : "error: ");
  PrintNote(message);
}

void PrintWarnings(HostRuntime* runtime) {
  for (const std::string& warning : runtime->TakeWarnings()) {
    PrintNote(absl::StrCat("warning: ", warning));
  }
}

bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

bool StderrIsTerminal() {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::strcmp(term, "dumb") == 0;
  return isatty(STDERR_FILENO) == 1 && !dumb;
}

int TerminalColumns(int fd) {
  struct winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

absl::Status CheckOutputFiles(const std::vector<NamedFile>& outputs,
                              const std::vector<NamedFile>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    for (const NamedFile& input : inputs) {
      if (!Collide(output, input)) continue;
      return absl::InvalidArgumentError(absl::StrCat(output.option, " ", output.path,
                                                     ": is the file of ", input.option,
                                                     ", which would be lost; write to another"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!Collide(output, outputs[j])) continue;
      return absl::InvalidArgumentError(absl::StrCat(output.option, " ", output.path,
                                                     ": is the file of ", outputs[j].option,
                                                     " too; write to two files"));
    }
  }
  return absl::OkStatus();
}

bool CanOpenFiles() { return StdoutIsTerminal() && (Set("DISPLAY") || Set("WAYLAND_DISPLAY")); }

bool OpenFile(const std::string& path) {
  std::error_code error;
  // The path is absolute, so that it is taken neither for an option nor for a URL.
  std::string whole = std::filesystem::absolute(path, error).string();
  if (error) return false;
  char program[] = "xdg-open";
  char* arguments[] = {program, whole.data(), nullptr};

  // Redirects the browser's messages away from this terminal; its own session keeps Ctrl-C from it.
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
