// SPDX-License-Identifier: Apache-2.0
// The output of the commands: results on stdout, everything else on stderr. Stateless; one thread.
#ifndef PLUMB_CLI_OUTPUT_H_
#define PLUMB_CLI_OUTPUT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/host_runtime.h"

namespace plumb::cli {

using Json = nlohmann::ordered_json;

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitPlugin = 3;
inline constexpr int kExitDiverged = 4;
inline constexpr int kExitInterrupted = 130;
inline constexpr int kExitReaderGone = 141;  // as a shell says of a program that SIGPIPE ended

// Which of them says what went wrong.
int ExitCodeOf(const absl::Status& status);
// Returns kExitOk, or the error.
absl::StatusOr<int> ExitOk(const absl::Status& status);

// Writes to stdout, at once, what a terminal may get of `text` (runtime/app/text.h): it quotes
// names from files. kUnavailable when nobody can read it: a closed pipe, a full disk. The first of
// them is no mistake, and not to be told: plumb describe MODEL | head.
bool IsReaderGone(const absl::Status& status);
absl::Status PrintResult(absl::string_view text);
// The same of a JSON value and a newline. Bytes that are not UTF-8 are replaced; what is not finite
// is null.
absl::Status PrintJson(const Json& json);
// Text that a model wrote: to a terminal as PrintResult, else byte for byte.
absl::Status PrintSample(absl::string_view text);

// A line on stderr, as PrintResult. Nobody reading it is no error.
void PrintNote(absl::string_view text);
void PrintError(absl::string_view message);  // after "error: ", red on a terminal
void PrintWarnings(HostRuntime* runtime);
// Prints the warnings of the call that returned `result`, which come before its error, and returns
// it: WithWarnings(runtime, ListZoo(runtime)).
template <typename T>
T WithWarnings(HostRuntime* runtime, T result) {
  PrintWarnings(runtime);
  return result;
}

// Writes `content` to a temporary next to `path`, syncs it, and renames it over `path`, which so
// holds the old content or the new, whole. What is no regular file (a device, a pipe, /dev/stdout)
// is written through. Errors: a directory, or a place that does not exist or is not the caller's
// (kInvalidArgument), a full disk (kResourceExhausted), another failure of the system.
absl::Status WriteFile(const std::string& path, absl::string_view content);

bool StdoutIsTerminal();
// Whether stderr is a terminal that understands escape sequences, and its width in columns.
bool StderrIsTerminal();
int TerminalColumns();

std::string WithCommas(int64_t n);                     // "25,968"
std::string Count(int64_t n, absl::string_view noun);  // "1 norm", "2,000 norms"
std::string Bytes(int64_t bytes);                      // "101.4 KiB"
std::string Duration(double seconds);                  // "0.84 s", "2:05", "1:02:05"
std::string Rate(double per_second);                   // "850", "45.2k"
// Returns the rows as lines of columns, two spaces apart, each line after `indent`. `alignment` has
// "l" or "r" for each column; the last one, if "l", is not padded.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view alignment, absl::string_view indent);
std::string ShapeText(const std::vector<int64_t>& shape);  // "[16, 16]"

struct NamedFile {
  std::string option;  // "--logits"
  std::string path;    // empty: not said
};

// Refuses an output that is an input too, and two outputs in one file. To be asked before anything
// is computed.
absl::Status CheckOutputFiles(const std::vector<NamedFile>& outputs,
                              const std::vector<NamedFile>& inputs);

// Returns true if someone would see an opened file: there is a display, and stdout is a terminal.
// Scripts, tests and ssh have none.
bool CanOpenFiles();

// Starts xdg-open on it and does not wait. False if it cannot be started.
bool OpenFile(const std::string& path);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_OUTPUT_H_
