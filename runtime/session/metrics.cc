#include "runtime/session/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/session/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

absl::Status FileError(const std::string& path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// A line of JSON in a buffer of its own: seven names and numbers always fit.
class Line {
 public:
  void Add(absl::string_view name, int64_t value) {
    AddName(name);
    end_ = std::to_chars(end_, buffer_ + sizeof(buffer_), value).ptr;
  }
  void Add(absl::string_view name, double value) {
    AddName(name);
    if (!std::isfinite(value)) return AddText("null");
    end_ = std::to_chars(end_, buffer_ + sizeof(buffer_), value).ptr;
  }
  absl::string_view Finish() {
    AddText("}\n");
    return {buffer_, static_cast<size_t>(end_ - buffer_)};
  }

 private:
  void AddName(absl::string_view name) {
    AddText(end_ == buffer_ ? "{\"" : ",\"");
    AddText(name);
    AddText("\":");
  }
  void AddText(absl::string_view text) {
    PLUMB_CHECK(text.size() <= static_cast<size_t>(buffer_ + sizeof(buffer_) - end_),
                "a line of metrics fits its buffer");
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }

  char buffer_[512];
  char* end_ = buffer_;
};

absl::StatusOr<double> Number(const Json& object, absl::string_view name) {
  const Json* value = FindMember(object, name);
  if (value != nullptr && value->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value != nullptr && value->is_number()) return value->get<double>();
  return absl::DataLossError(absl::StrCat("has no number \"", name, "\""));
}

absl::StatusOr<int64_t> Integer(const Json& object, absl::string_view name) {
  const Json* value = FindMember(object, name);
  const absl::optional<int64_t> number = value == nullptr ? absl::nullopt : AsInt64(*value);
  if (number) return *number;
  return absl::DataLossError(absl::StrCat("has no whole number \"", name, "\""));
}

absl::StatusOr<StepMetrics> ParseLine(absl::string_view line) {
  constexpr int kMaxDepth = 8;  // figures per layer may be nested in a line
  absl::StatusOr<Json> object = ParseStrictJson(line, kMaxDepth);
  if (!object.ok()) return absl::DataLossError(object.status().message());
  StepMetrics metrics;
  PLUMB_ASSIGN_OR_RETURN(metrics.step, Integer(*object, "step"));
  PLUMB_ASSIGN_OR_RETURN(metrics.loss, Number(*object, "loss"));
  PLUMB_ASSIGN_OR_RETURN(metrics.lr, Number(*object, "lr"));
  PLUMB_ASSIGN_OR_RETURN(metrics.grad_norm, Number(*object, "grad_norm"));
  PLUMB_ASSIGN_OR_RETURN(metrics.tokens, Integer(*object, "tokens"));
  PLUMB_ASSIGN_OR_RETURN(metrics.seconds, Number(*object, "seconds"));
  if (FindMember(*object, "val_loss") != nullptr) {
    PLUMB_ASSIGN_OR_RETURN(metrics.val_loss, Number(*object, "val_loss"));
  }
  return metrics;
}

// Calls visit(line without its newline, metrics) for every whole line of `content`.
template <class Visit>
absl::Status ForEachLine(const std::string& path, absl::string_view content, const Visit& visit) {
  for (int64_t number = 1; !content.empty(); ++number) {
    const size_t newline = content.find('\n');
    const absl::string_view line = content.substr(0, newline);
    content.remove_prefix(newline == absl::string_view::npos ? content.size() : newline + 1);
    const absl::StatusOr<StepMetrics> metrics = ParseLine(line);
    // Only the last line can have been cut by a crash; a disk may also have filled it with zeros.
    if (!metrics.ok() && content.empty()) return absl::OkStatus();
    if (!metrics.ok()) return Annotate(metrics.status(), absl::StrCat(path, ":", number, ": "));
    visit(line, *metrics);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MetricsWriter> MetricsWriter::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "cannot open");
  MetricsWriter writer(path, fd, 0);  // closes fd on every way out
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError(path, "cannot stat");
  writer.size_ = info.st_size;
  char last = '\n';
  if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) != 1) {
    return FileError(path, "cannot read");
  }
  if (last != '\n') {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ends in the middle of a line; resume the run to mend it"));
  }
  return writer;
}

MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

MetricsWriter& MetricsWriter::operator=(MetricsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

MetricsWriter::~MetricsWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MetricsWriter::Append(const StepMetrics& metrics) {
  Line line;
  line.Add("step", metrics.step);
  line.Add("loss", metrics.loss);
  line.Add("lr", metrics.lr);
  line.Add("grad_norm", metrics.grad_norm);
  line.Add("tokens", metrics.tokens);
  line.Add("seconds", metrics.seconds);
  if (metrics.val_loss) line.Add("val_loss", *metrics.val_loss);
  const absl::string_view text = line.Finish();
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const absl::Status status = FileError(path_, "cannot write");
      // Take back the half line; should that fail too, resuming drops it.
      if (done > 0 && ftruncate(fd_, size_) != 0) return status;
      return status;
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(text.size());
  return absl::OkStatus();
}

absl::Status MetricsWriter::Sync() {
  return fsync(fd_) == 0 ? absl::OkStatus() : FileError(path_, "cannot sync");
}

absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  std::vector<StepMetrics> all;
  PLUMB_RETURN_IF_ERROR(ForEachLine(
      path, content, [&](absl::string_view, const StepMetrics& m) { all.push_back(m); }));
  return all;
}

absl::Status TruncateMetrics(const std::string& path, int64_t last_step) {
  if (!FileExists(path)) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  std::string kept;
  PLUMB_RETURN_IF_ERROR(
      ForEachLine(path, content, [&](absl::string_view line, const StepMetrics& m) {
        if (m.step <= last_step) absl::StrAppend(&kept, line, "\n");
      }));
  if (kept == content) return absl::OkStatus();
  return WriteFileAtomically(path, kept);
}

}  // namespace plumb
