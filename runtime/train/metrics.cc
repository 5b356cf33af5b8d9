// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/metrics.h"

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
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Line of JSON in a fixed buffer, which has room for seven names and numbers.
class MetricsLine {
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
  return absl::DataLossError(absl::StrCat("\"", name, "\" is missing or not a number"));
}

absl::StatusOr<int64_t> Integer(const Json& object, absl::string_view name) {
  const Json* value = FindMember(object, name);
  const absl::optional<int64_t> number = value == nullptr ? absl::nullopt : AsInt64(*value);
  if (number) return *number;
  return absl::DataLossError(absl::StrCat("\"", name, "\" is missing or not a whole number"));
}

absl::StatusOr<StepMetrics> ParseLine(absl::string_view line) {
  constexpr int kLineDepth = 8;  // lines may contain nested figures per layer
  absl::StatusOr<Json> object = ParseStrictJson(line, kLineDepth);
  if (!object.ok()) return absl::DataLossError(object.status().message());
  StepMetrics metrics;
  PLUMB_ASSIGN_OR_RETURN(metrics.step, Integer(*object, "step"));
  PLUMB_ASSIGN_OR_RETURN(metrics.loss, Number(*object, "loss"));
  PLUMB_ASSIGN_OR_RETURN(metrics.learning_rate, Number(*object, "lr"));
  PLUMB_ASSIGN_OR_RETURN(metrics.gradient_norm, Number(*object, "grad_norm"));
  PLUMB_ASSIGN_OR_RETURN(metrics.tokens, Integer(*object, "tokens"));
  PLUMB_ASSIGN_OR_RETURN(metrics.seconds, Number(*object, "seconds"));
  if (FindMember(*object, "val_loss") != nullptr) {
    PLUMB_ASSIGN_OR_RETURN(metrics.val_loss, Number(*object, "val_loss"));
  }
  return metrics;
}

}  // namespace

absl::StatusOr<MetricsWriter> MetricsWriter::Open(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(JsonLinesWriter lines, JsonLinesWriter::Open(path));
  return MetricsWriter(std::move(lines));
}

absl::Status MetricsWriter::Append(const StepMetrics& metrics) {
  MetricsLine line;
  line.Add("step", metrics.step);
  line.Add("loss", metrics.loss);
  line.Add("lr", metrics.learning_rate);
  line.Add("grad_norm", metrics.gradient_norm);
  line.Add("tokens", metrics.tokens);
  line.Add("seconds", metrics.seconds);
  if (metrics.val_loss) line.Add("val_loss", *metrics.val_loss);
  return lines_.Append(line.Finish());
}

absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadData(path));
  std::vector<StepMetrics> all;
  PLUMB_RETURN_IF_ERROR(ForEachJsonLine(path, content, [&](absl::string_view line) -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const StepMetrics metrics, ParseLine(line));
    all.push_back(metrics);
    return absl::OkStatus();
  }));
  return all;
}

absl::StatusOr<std::string> TruncateMetrics(const std::string& path, int64_t last_step) {
  return FilterJsonLines(path, [last_step](absl::string_view line) -> absl::StatusOr<bool> {
    PLUMB_ASSIGN_OR_RETURN(const StepMetrics metrics, ParseLine(line));
    return metrics.step <= last_step;
  });
}

}  // namespace plumb
