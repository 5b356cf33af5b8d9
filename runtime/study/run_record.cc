// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/run_record.h"

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/client/recipe.h"
#include "runtime/study/statistics.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run_directory.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "plumb-compare-run";

// Returns the content of a file, "" if there is none.
absl::StatusOr<std::string> ReadIfThere(const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(path, kMaxResultBytes);
  if (absl::IsNotFound(content.status())) return std::string();
  return content;
}

Json Parse(absl::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

double Number(const Json& object, const char* name) {
  if (!object.is_object()) return kNaN;
  const auto member = object.find(name);
  return member != object.end() && member->is_number() ? member->get<double>() : kNaN;
}

std::string String(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// Returns the number of Unicode characters in `text`, and how often the most frequent one occurs.
std::pair<int64_t, int64_t> CountCharacters(const std::string& text) {
  std::map<std::string, int64_t> counts;
  int64_t total = 0, max = 0;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    max = std::max(max, ++counts[text.substr(i, end - i)]);
    ++total;
    i = end;
  }
  return {total, max};
}

}  // namespace

absl::StatusOr<std::optional<RunResult>> ReadRunResult(const std::string& directory) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadIfThere(RunResultPath(directory)));
  const Json json = Parse(text);
  if (!json.is_object() || String(json, "format") != kFormat || Number(json, "version") != 1) {
    return std::nullopt;
  }
  RunResult result;
  const std::string status = String(json, "status");
  const double step = Number(json, "step");
  if ((status != "finished" && status != "diverged") || !(step >= 1)) return std::nullopt;
  result.status = status == "diverged" ? RunStatus::kDiverged : RunStatus::kFinished;
  result.step = static_cast<int64_t>(step);
  result.message = String(json, "message");
  if (const double loss = Number(json, "validation"); !std::isnan(loss)) result.validation = loss;
  const auto count = [&json](const char* name) {
    const double number = Number(json, name);
    return number >= 1 ? static_cast<int64_t>(number) : 0;
  };
  result.spikes = count("spikes");
  result.skips = count("skips");
  const auto samples = json.find("samples");
  if (samples == json.end() || !samples->is_array()) return std::nullopt;
  for (const Json& sample : *samples) {
    if (!sample.is_object()) return std::nullopt;
    result.samples.push_back({String(sample, "text"), String(sample, "degenerate")});
  }
  return result;
}

absl::Status WriteRunResult(const std::string& directory, const RunResult& result) {
  Json json = {{"format", kFormat},
               {"version", 1},
               {"status", StatusName(result.status)},
               {"step", result.step},
               {"message", result.message},
               {"validation", result.validation ? Json(*result.validation) : Json()},
               {"spikes", result.spikes},
               {"skips", result.skips},
               {"samples", Json::array()}};
  for (const RunSample& sample : result.samples) {
    json["samples"].push_back({{"text", sample.text}, {"degenerate", sample.degenerate}});
  }
  return WriteFileAtomically(RunResultPath(directory),
                             json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

namespace {

// Fails for a row of metrics.csv that is not that of the next step.
absl::Status CheckStep(const std::string& directory, int64_t step, int64_t next) {
  if (step == next) return absl::OkStatus();
  const std::string problem = step < next ? absl::StrCat("has step ", step, " twice")
                                          : absl::StrCat("lacks steps ", next, " to ", step - 1);
  return absl::DataLossError(absl::StrCat(RunMetricsPath(directory), ": ", problem));
}

// Reads the steps of metrics.csv, at most `max_steps`, into a record.
absl::Status AddSteps(const std::string& directory, int64_t max_steps, RunRecord* record) {
  const absl::StatusOr<std::vector<StepMetrics>> all = ReadMetrics(RunMetricsPath(directory));
  if (absl::IsNotFound(all.status())) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(all.status());
  for (const StepMetrics& metrics : *all) {
    const int64_t step = static_cast<int64_t>(record->losses.size()) + 1;
    if (step > max_steps) break;
    PLUMB_RETURN_IF_ERROR(CheckStep(directory, metrics.step, step));
    record->losses.push_back(metrics.loss);
    if (metrics.val_loss) record->validation.emplace_back(step, *metrics.val_loss);
    record->seconds += metrics.seconds;
    record->tokens += metrics.tokens;
  }
  return absl::OkStatus();
}

absl::Status ReadSteps(const std::string& directory, int64_t max_steps, RunRecord* record) {
  const absl::Status added = AddSteps(directory, max_steps, record);
  if (absl::IsDataLoss(added)) {
    return absl::DataLossError(absl::StrCat(
        added.message(), ", so that the run is not known; train it again, or drop it"));
  }
  PLUMB_RETURN_IF_ERROR(added);
  PLUMB_ASSIGN_OR_RETURN(const std::string probes,
                         ReadIfThere(absl::StrCat(directory, "/probes.jsonl")));
  record->probes = ParseProbes(probes, max_steps);
  PLUMB_ASSIGN_OR_RETURN(const std::string origin,
                         ReadIfThere(absl::StrCat(directory, "/run.json")));
  record->products = String(Parse(origin), "matmul");
  return absl::OkStatus();
}

// Sets how a run without result.json came to its last step.
absl::Status SetResultOfTraining(const std::string& directory, RunRecord* record) {
  RunResult& result = record->result;
  result.step = static_cast<int64_t>(record->losses.size());
  PLUMB_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(RunTrainPath(directory), {}));
  // A loss over some batches, or at an earlier step, is not that of the run.
  if (recipe.fields.eval_batches() == 0 && !record->validation.empty() &&
      record->validation.back().first == result.step) {
    result.validation = record->validation.back().second;
  }
  result.status =
      result.step >= recipe.fields.max_steps() ? RunStatus::kFinished : RunStatus::kInterrupted;
  result.message =
      absl::StrCat("interrupted after ", result.step, " of ", recipe.fields.max_steps(), " steps");
  PLUMB_ASSIGN_OR_RETURN(const std::string incidents, ReadIfThere(RunIncidentsPath(directory)));
  for (absl::string_view line : absl::StrSplit(incidents, '\n', absl::SkipEmpty())) {
    const Json incident = Parse(line);
    const std::string kind = String(incident, "kind");
    const double step = Number(incident, "step");
    if (kind == "spike") ++result.spikes;
    if (kind == "skip") ++result.skips;
    if (kind == "stop" && step == static_cast<double>(record->losses.size() + 1)) {
      result.status = RunStatus::kDiverged;
      result.step = static_cast<int64_t>(step);
      result.message = String(incident, "message");
    }
  }
  if (result.status == RunStatus::kFinished) result.message.clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& directory) {
  PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> read, ReadRunResult(directory));
  RunRecord record;
  if (!read) {
    PLUMB_RETURN_IF_ERROR(ReadSteps(directory, std::numeric_limits<int64_t>::max(), &record));
    PLUMB_RETURN_IF_ERROR(SetResultOfTraining(directory, &record));
    return record;
  }
  record.has_result = true;
  record.result = *read;
  PLUMB_RETURN_IF_ERROR(ReadSteps(directory, read->step, &record));
  const int64_t steps = read->step - (read->status == RunStatus::kDiverged ? 1 : 0);
  if (static_cast<int64_t>(record.losses.size()) != steps) {
    return absl::DataLossError(absl::StrCat(RunMetricsPath(directory), ": has ",
                                            record.losses.size(), " steps and not ", steps,
                                            "; delete ", directory, " to train this run again"));
  }
  if (read->validation) {
    // The exact final loss replaces one over some batches.
    if (!record.validation.empty() && record.validation.back().first == steps) {
      record.validation.pop_back();
    }
    record.validation.emplace_back(steps, *read->validation);
  }
  return record;
}

const char* StatusName(RunStatus status) {
  switch (status) {
    case RunStatus::kFinished:
      return "finished";
    case RunStatus::kDiverged:
      return "diverged";
    case RunStatus::kInterrupted:
      break;
  }
  return "interrupted";
}

std::string Degenerate(const std::string& text) {
  if (absl::StripAsciiWhitespace(text).empty()) return "empty";
  const auto [total, max] = CountCharacters(text);
  // Names like "anna" are short enough to pass; "aaaaaaaa" is degenerate.
  if (total >= 8 && 5 * max >= 3 * total) {
    return absl::StrCat("one character makes up ", 100 * max / total, " %");
  }
  std::map<absl::string_view, int> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) ++lines[line];
  }
  int repeated = 0;
  for (const auto& entry : lines) repeated = std::max(repeated, entry.second);
  return repeated >= 5 ? absl::StrCat("the same line ", repeated, " times") : "";
}

}  // namespace plumb
