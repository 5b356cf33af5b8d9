// SPDX-License-Identifier: Apache-2.0
// Files of lines that grow during a run and are truncated to a step when it is resumed:
// metrics.csv, probes.jsonl, incidents.jsonl.
#ifndef PLUMB_RUNTIME_FORMATS_LINE_FILE_H_
#define PLUMB_RUNTIME_FORMATS_LINE_FILE_H_

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
class LineWriter {
 public:
  // Opens `path`, or creates it. Errors: kFailedPrecondition if the file ends in the middle of a
  // line, which FilterLines repairs.
  static absl::StatusOr<LineWriter> Open(const std::string& path);
  LineWriter(LineWriter&& other) noexcept;
  LineWriter& operator=(LineWriter&& other) noexcept;
  LineWriter(const LineWriter&) = delete;
  ~LineWriter();

  // Writes `line`, which ends with a newline, to the file; writes none of it on an error.
  absl::Status Append(absl::string_view line);
  bool empty() const { return size_ == 0; }  // true if the file has no line
  // Syncs the lines to disk.
  absl::Status Sync();

 private:
  LineWriter(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Calls visit(line without its newline) for every line of `content`. Returns the first error of
// `visit`, with file and line; an error on the last line is ignored, since a crash may have
// truncated that line.
absl::Status ForEachLine(const std::string& path, absl::string_view content,
                         absl::FunctionRef<absl::Status(absl::string_view line)> visit);

// Drops the lines of `path` for which `keep` returns false, and a truncated last line. Kept lines
// keep their bytes. The file is replaced atomically, and not touched if nothing is dropped or if it
// does not exist. Lines for which `keep` fails are dropped too, after the file was copied to
// PATH.damaged. Returns a warning in this case, else "". `header`, a line with its newline or "",
// begins the file even if it had lost it, and is not passed to `keep`.
absl::StatusOr<std::string> FilterLines(
    const std::string& path, absl::string_view header,
    absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> keep);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_LINE_FILE_H_
