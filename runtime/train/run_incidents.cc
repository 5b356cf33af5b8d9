// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_incidents.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Reads a member that is an integer >= least.
bool TakeCount(const Json& object, const char* name, int64_t min, int64_t* to) {
  const Json* member = FindMember(object, name);
  const absl::optional<int64_t> number = member == nullptr ? absl::nullopt : AsInt64(*member);
  if (!number || *number < min) return false;
  *to = *number;
  return true;
}

bool TakeLosses(const Json& object, SpikeDetector* to) {
  const Json* losses = FindMember(object, "losses");
  const Json* is_high = FindMember(object, "in_spike");
  if (losses == nullptr || !losses->is_array() || losses->size() > SpikeDetector::kWindow ||
      is_high == nullptr || !is_high->is_boolean()) {
    return false;
  }
  std::vector<double> values;
  for (const Json& loss : *losses) {
    if (!loss.is_number()) return false;
    values.push_back(loss.get<double>());
  }
  to->Restore(values, is_high->get<bool>());
  return true;
}

absl::StatusOr<int64_t> ParseBatch(absl::string_view text) {
  constexpr int kLineDepth = 4;
  const absl::StatusOr<Json> object = ParseStrictJson(text, kLineDepth);
  if (!object.ok()) return absl::DataLossError(object.status().message());
  int64_t batch = 0;
  if (object->is_object() && TakeCount(*object, "batch", 0, &batch)) return batch;
  return absl::DataLossError("\"batch\" is missing or not a whole number");
}

}  // namespace

std::string WithIncidents(const std::string& json, const IncidentState& state) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return json;
  object["incidents"] = {{"spikes", state.counts.spikes},
                         {"skips", state.counts.skips},
                         {"batches_skipped", state.batches_skipped},
                         {"last_good", state.last_good},
                         {"losses", state.losses.losses()},
                         {"in_spike", state.losses.is_high()}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<IncidentState> ParseIncidents(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  IncidentState state;
  if (!object.is_object() || !object.contains("incidents")) return state;
  const Json& incidents = object["incidents"];
  if (!incidents.is_object() || !TakeCount(incidents, "spikes", 0, &state.counts.spikes) ||
      !TakeCount(incidents, "skips", 0, &state.counts.skips) ||
      !TakeCount(incidents, "batches_skipped", 0, &state.batches_skipped) ||
      !TakeCount(incidents, "last_good", -1, &state.last_good) ||
      !TakeLosses(incidents, &state.losses)) {
    return absl::DataLossError("a field of \"incidents\" is missing or has the wrong type");
  }
  return state;
}

absl::Status IncidentLog::Append(const IncidentLine& line) {
  if (!lines_.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(LineWriter lines, LineWriter::Open(path_));
    lines_.emplace(std::move(lines));
  }
  const nlohmann::ordered_json json = {
      {"step", line.step}, {"batch", line.batch}, {"kind", line.kind}, {"message", line.message}};
  return lines_->Append(
      absl::StrCat(json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n"));
}

absl::Status IncidentLog::Sync() { return lines_.has_value() ? lines_->Sync() : absl::OkStatus(); }

absl::StatusOr<std::string> TruncateIncidents(const std::string& path, int64_t last_batch) {
  return FilterLines(path, /*header=*/"",
                     [last_batch](absl::string_view line) -> absl::StatusOr<bool> {
                       PLUMB_ASSIGN_OR_RETURN(const int64_t batch, ParseBatch(line));
                       return batch <= last_batch;
                     });
}

}  // namespace plumb
