// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Visits the next line of `*rest` and removes it.
absl::Status VisitLine(absl::string_view* rest,
                       absl::FunctionRef<absl::Status(absl::string_view line)> visit) {
  const size_t newline = rest->find('\n');
  const absl::string_view line = rest->substr(0, newline);
  rest->remove_prefix(newline == absl::string_view::npos ? rest->size() : newline + 1);
  const absl::Status status = visit(line);
  // A crash can truncate only the last line; the disk may also have filled it with zeros.
  return rest->empty() ? absl::OkStatus() : status;
}

// Copies the content of `path` to a new file next to it and returns that file's name.
absl::StatusOr<std::string> SetAside(const std::string& path, const std::string& content) {
  std::string aside = absl::StrCat(path, ".damaged");
  constexpr int kMax = 1000;
  for (int i = 2; i <= kMax && FileExists(aside); ++i) aside = absl::StrCat(path, ".damaged-", i);
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(aside, content));
  return aside;
}

}  // namespace

absl::StatusOr<LineWriter> LineWriter::Open(const std::string& path) {
  const int fd = Files().Open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "cannot open");
  LineWriter writer(path, fd, 0);  // closes fd on every return
  struct stat info;
  if (Files().FileStat(fd, &info) != 0) return FileError(path, "cannot stat");
  writer.size_ = info.st_size;
  char last = '\n';
  if (info.st_size > 0 && Files().ReadAt(fd, &last, 1, info.st_size - 1) != 1) {
    return FileError(path, "cannot read");
  }
  if (last != '\n') {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ends in the middle of a line; resume the run to mend it"));
  }
  return writer;
}

LineWriter::LineWriter(LineWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

LineWriter& LineWriter::operator=(LineWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

LineWriter::~LineWriter() {
  if (fd_ >= 0) Files().Close(fd_);
}

absl::Status LineWriter::Append(absl::string_view line) {
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = Files().Write(fd_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const absl::Status status = FileError(path_, "cannot write");
      // Removes the partial line. If that fails too, resuming drops it.
      if (done > 0 && Files().Truncate(fd_, size_) != 0) return status;
      return status;
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(line.size());
  return absl::OkStatus();
}

absl::Status LineWriter::Sync() {
  return Files().Sync(fd_) == 0 ? absl::OkStatus() : FileError(path_, "cannot sync");
}

absl::Status ForEachLine(const std::string& path, absl::string_view content,
                         absl::FunctionRef<absl::Status(absl::string_view line)> visit) {
  for (int64_t number = 1; !content.empty(); ++number) {
    PLUMB_RETURN_IF_ERROR(
        Annotate(VisitLine(&content, visit), absl::StrCat(path, ":", number, ": ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FilterLines(
    const std::string& path, absl::string_view header,
    absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> keep) {
  if (!FileExists(path)) return std::string();
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadData(path));
  std::string kept(header);
  absl::Status damage;  // error of the first damaged line
  const auto visit = [&](absl::string_view line) -> absl::Status {
    if (absl::StrCat(line, "\n") == header) return absl::OkStatus();
    const absl::StatusOr<bool> keeps = keep(line);
    if (keeps.ok() && *keeps) absl::StrAppend(&kept, line, "\n");
    return keeps.status();
  };
  absl::string_view rest = content;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const absl::Status status = VisitLine(&rest, visit);
    if (damage.ok()) damage = Annotate(status, absl::StrCat(path, ":", number, ": "));
  }
  if (kept == content) return std::string();
  std::string warning;
  if (!damage.ok()) {
    PLUMB_ASSIGN_OR_RETURN(const std::string aside, SetAside(path, content));
    warning = absl::StrCat(damage.message(), "; the damaged file is now ", aside,
                           ", and what can be read of it stays");
  }
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  return warning;
}

}  // namespace plumb
