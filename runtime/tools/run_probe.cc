#include "runtime/tools/run_probe.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/status.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

TensorFigures ToPublic(const TensorStats& stats) {
  TensorFigures figures;
  figures.rms = stats.Rms();
  figures.max = static_cast<double>(stats.max_abs);
  figures.mean = stats.Mean();
  figures.nonfinite = stats.nonfinite;
  figures.elements = stats.count + stats.nonfinite;
  return figures;
}

void ToPublic(const std::vector<ProbeResult::Tensor>& from, std::vector<ProbedTensor>* to) {
  to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    (*to)[i].name = from[i].name;
    (*to)[i].figures = ToPublic(from[i].stats);
  }
}

}  // namespace

std::string WithProbe(const std::string& json, const ProbeOptions& options) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return json;
  object.erase("probe");
  if (options.every > 0) object["probe"] = {{"every", options.every}, {"points", options.points}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<ProbeOptions> ProbeOf(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  ProbeOptions options;
  if (!object.is_object() || !object.contains("probe")) return options;
  const Json& probe = object["probe"];
  const absl::Status error =
      absl::DataLossError("\"probe\" is not {\"every\": steps, \"points\": [names]}");
  if (!probe.is_object() || !probe.contains("every") || !probe.contains("points")) return error;
  if (!probe["every"].is_number_integer() || !probe["points"].is_array()) return error;
  options.every = probe["every"].get<int64_t>();
  if (options.every < 1) return error;
  for (const Json& point : probe["points"]) {
    if (!point.is_string()) return error;
    options.points.push_back(point.get<std::string>());
  }
  return options;
}

void ToPublic(const ProbeResult& result, ProbeFigures* figures) {
  figures->step = result.step;
  figures->diverged = result.diverged;
  ToPublic(result.activations, &figures->activations);
  ToPublic(result.gradients, &figures->gradients);
  figures->parameters.resize(result.parameters.size());
  for (size_t i = 0; i < result.parameters.size(); ++i) {
    const ProbeResult::Parameter& from = result.parameters[i];
    figures->parameters[i].name = from.name;
    figures->parameters[i].value = ToPublic(from.value);
    figures->parameters[i].gradient = ToPublic(from.gradient);
  }
}

absl::StatusOr<const ProbeFigures*> RunProbe::Take(const ProbeResult& result) {
  // A step that diverged can be tried again, and diverges again.
  const bool again = result.diverged && figures_.diverged && figures_.step == result.step;
  ToPublic(result, &figures_);
  if (path_.empty() || again) return &figures_;
  if (!writer_.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(ProbeWriter writer, ProbeWriter::Open(path_));
    writer_.emplace(std::move(writer));
  }
  PLUMB_RETURN_IF_ERROR(writer_->Append(result));
  return &figures_;
}

absl::Status RunProbe::Sync() { return writer_.has_value() ? writer_->Sync() : absl::OkStatus(); }

}  // namespace plumb
