// SPDX-License-Identifier: Apache-2.0
// Files of one JSON object a line that grow during a run, and are truncated to a step when it is
// resumed: metrics.jsonl, probes.jsonl. Internal to this module.
#ifndef PLUMB_RUNTIME_FORMATS_JSON_LINES_H_
#define PLUMB_RUNTIME_FORMATS_JSON_LINES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Appends lines. Owns the open file; move-only; thread-compatible. Append allocates nothing.
class JsonLinesWriter {
 public:
  // Creates `path` if it is not there. FailedPrecondition when it ends in the middle of a line,
  // which FilterJsonLines mends.
  static absl::StatusOr<JsonLinesWriter> Open(const std::string& path);
  JsonLinesWriter(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter& operator=(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  ~JsonLinesWriter();

  // `line` ends with its newline. Handed to the operating system before this returns; all of it or,
  // on an error, none.
  absl::Status Append(absl::string_view line);
  // Waits until the lines are on the disk.
  absl::Status Sync();

 private:
  JsonLinesWriter(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Calls visit(line without its newline) for every whole line of `content`. Its errors come back
// with file and line; but a last line that it refuses is taken for one that a crash cut short.
absl::Status ForEachJsonLine(const std::string& path, absl::string_view content,
                             absl::FunctionRef<absl::Status(absl::string_view line)> visit);

// Drops the lines of `path` that `keep` says no to, and a last line that was cut short. Kept lines
// keep their bytes; the file is replaced atomically, and not touched when nothing is to be dropped.
// Without the file there is nothing to do. Lines that `keep` has an error for are dropped too, once
// a copy of the file is PATH.damaged: a warning that says so is returned, else "".
absl::StatusOr<std::string> FilterJsonLines(
    const std::string& path, absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> keep);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_JSON_LINES_H_
