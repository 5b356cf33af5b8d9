#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/tools/text.h"

namespace plumb::cli {
namespace {

constexpr char kReaderGone[] = "plumb/reader-gone";  // a payload of absl::Status

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

}  // namespace

bool IsReaderGone(const absl::Status& status) { return status.GetPayload(kReaderGone).has_value(); }

int ExitCodeOf(const absl::Status& status) {
  if (IsReaderGone(status)) return kExitReaderGone;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
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

absl::Status PrintResult(absl::string_view text) { return WriteToStdout(ToPrintable(text)); }

absl::Status PrintJson(const Json& json) {
  return WriteToStdout(
      ToPrintableJson(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
}

absl::Status PrintSample(absl::string_view text) {
  return StdoutIsTerminal() ? PrintResult(text) : WriteToStdout(text);
}

void PrintNote(absl::string_view text) { WriteToStderr(absl::StrCat(ToPrintable(text), "\n")); }

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

int TerminalColumns() {
  struct winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string WithCommas(int64_t n) {
  std::string digits = absl::StrCat(n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string Count(int64_t n, absl::string_view noun) {
  return absl::StrCat(WithCommas(n), " ", noun, n == 1 ? "" : "s");
}

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return Count(bytes, "byte");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  if (seconds < 60) return absl::StrFormat(seconds < 10 ? "%.2f s" : "%.1f s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Rate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "-";
  if (per_second < 1e3) return absl::StrFormat("%.0f", per_second);
  if (per_second < 1e6) return absl::StrFormat("%.1fk", per_second / 1e3);
  return absl::StrFormat("%.1fM", per_second / 1e6);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace plumb::cli
