// SPDX-License-Identifier: Apache-2.0
// Files with one JSON object per line that grow during a run and are truncated to a step when it is
// resumed: metrics.jsonl, probes.jsonl.
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

// Appends lines to a file. Owns the open file; move-only; thread-compatible. Append allocates
// nothing unless it fails.
class JsonLinesWriter {
 public:
  // Opens `path`, or creates it. Errors: kFailedPrecondition if the file ends in the middle of a
  // line, which FilterJsonLines repairs.
  static absl::StatusOr<JsonLinesWriter> Open(const std::string& path);
  JsonLinesWriter(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter& operator=(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  ~JsonLinesWriter();

  // Writes `line`, which ends with a newline, to the file; writes none of it on an error.
  absl::Status Append(absl::string_view line);
  // Syncs the lines to disk.
  absl::Status Sync();

 private:
  JsonLinesWriter(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Calls visit(line without its newline) for every line of `content`. Returns the first error of
// `visit`, with file and line; an error on the last line is ignored, since a crash may have
// truncated that line.
absl::Status ForEachJsonLine(const std::string& path, absl::string_view content,
                             absl::FunctionRef<absl::Status(absl::string_view line)> visit);

// Drops the lines of `path` for which `keep` returns false, and a truncated last line. Kept lines
// keep their bytes. The file is replaced atomically, and not touched if nothing is dropped or if it
// does not exist. Lines for which `keep` fails are dropped too, after the file was copied to
// PATH.damaged. Returns a warning in this case, else "".
absl::StatusOr<std::string> FilterJsonLines(
    const std::string& path, absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> keep);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_JSON_LINES_H_
