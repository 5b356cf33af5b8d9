// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/metrics.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr absl::string_view kHeader = "step,loss,lr,grad_norm,tokens,nanoseconds,val_loss\n";
constexpr double kNanoseconds = 1e9;  // in a second

// Row in a fixed buffer, which has room for seven numbers.
class MetricsRow {
 public:
  template <typename Number>
  void Add(Number value) {
    const auto [end, error] = std::to_chars(end_, buffer_ + sizeof(buffer_) - 1, value);
    PLUMB_CHECK(error == std::errc(), "a row of metrics fits its buffer");
    end_ = end;
    EndCell();
  }
  void EndCell() { *end_++ = ','; }
  absl::string_view Finish() {
    end_[-1] = '\n';
    return {buffer_, static_cast<size_t>(end_ - buffer_)};
  }

 private:
  char buffer_[256];
  char* end_ = buffer_;
};

template <typename Number>
bool ParseCell(absl::string_view cell, Number* value) {
  const char* const end = cell.data() + cell.size();
  const auto [rest, error] = std::from_chars(cell.data(), end, *value);
  return error == std::errc() && rest == end;
}

absl::StatusOr<StepMetrics> ParseRow(absl::string_view line) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  StepMetrics metrics;
  int64_t nanoseconds = 0;
  double val_loss = 0;
  if (cells.size() != 7 || !ParseCell(cells[0], &metrics.step) ||
      !ParseCell(cells[1], &metrics.loss) || !ParseCell(cells[2], &metrics.learning_rate) ||
      !ParseCell(cells[3], &metrics.gradient_norm) || !ParseCell(cells[4], &metrics.tokens) ||
      !ParseCell(cells[5], &nanoseconds) ||
      (!cells[6].empty() && !ParseCell(cells[6], &val_loss))) {
    return absl::DataLossError(
        absl::StrCat("is not a row of ", kHeader.substr(0, kHeader.size() - 1)));
  }
  metrics.seconds = static_cast<double>(nanoseconds) / kNanoseconds;
  if (!cells[6].empty()) metrics.val_loss = val_loss;
  return metrics;
}

// Fails if the run has metrics of an earlier plumb.
absl::Status CheckFormat(const std::string& path) {
  const std::string earlier = JoinPath(ParentDirectory(path), "metrics.jsonl");
  if (FileExists(path) || !FileExists(earlier)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(earlier,
                   ": was written by an earlier plumb; this one reads metrics.csv; train the run "
                   "again, or use it with the plumb that trained it"));
}

}  // namespace

absl::StatusOr<MetricsWriter> MetricsWriter::Open(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(LineWriter lines, LineWriter::Open(path));
  if (lines.empty()) PLUMB_RETURN_IF_ERROR(lines.Append(kHeader));
  return MetricsWriter(std::move(lines));
}

absl::Status MetricsWriter::Append(const StepMetrics& metrics) {
  MetricsRow row;
  row.Add(metrics.step);
  row.Add(metrics.loss);
  row.Add(static_cast<float>(metrics.learning_rate));
  row.Add(metrics.gradient_norm);
  row.Add(metrics.tokens);
  row.Add(static_cast<int64_t>(std::llround(metrics.seconds * kNanoseconds)));
  metrics.val_loss ? row.Add(*metrics.val_loss) : row.EndCell();
  return lines_.Append(row.Finish());
}

absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  PLUMB_RETURN_IF_ERROR(CheckFormat(path));
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadData(path));
  std::vector<StepMetrics> all;
  bool has_header = false;
  PLUMB_RETURN_IF_ERROR(ForEachLine(path, content, [&](absl::string_view line) -> absl::Status {
    if (!has_header) {
      has_header = absl::StrCat(line, "\n") == kHeader;
      return has_header ? absl::OkStatus() : absl::DataLossError("has no header of metrics");
    }
    PLUMB_ASSIGN_OR_RETURN(const StepMetrics metrics, ParseRow(line));
    all.push_back(metrics);
    return absl::OkStatus();
  }));
  return all;
}

absl::StatusOr<std::string> TruncateMetrics(const std::string& path, int64_t last_step) {
  PLUMB_RETURN_IF_ERROR(CheckFormat(path));
  return FilterLines(path, kHeader, [last_step](absl::string_view line) -> absl::StatusOr<bool> {
    PLUMB_ASSIGN_OR_RETURN(const StepMetrics metrics, ParseRow(line));
    return metrics.step <= last_step;
  });
}

}  // namespace plumb
