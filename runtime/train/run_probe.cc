// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_probe.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Returns element `i`, after appending it if i == list->size().
template <class Named>
Named& At(size_t i, std::vector<Named>* list) {
  if (i == list->size()) list->emplace_back();
  return (*list)[i];
}

// Copies the figures of the trainer's last step. Returns false if it was not probed.
bool TakeFigures(const api::Trainer& trainer, ProbeFigures* figures) {
  size_t activations = 0, gradients = 0, parameters = 0;
  for (const api::ProbeInfo& probe : trainer.GetProbes()) {
    figures->step = probe.step;
    if (probe.kind == PLUMB_PROBE_PARAMETER_GRADIENT) {  // follows its parameter
      figures->parameters[parameters - 1].gradient = ToFigures(probe);
    } else if (probe.kind == PLUMB_PROBE_PARAMETER) {
      ProbedParameter& parameter = At(parameters++, &figures->parameters);
      parameter.name = probe.name;
      parameter.value = ToFigures(probe);
      parameter.update_rms.reset();  // of an earlier step, like the others
      parameter.update_ratio.reset();
      parameter.spectral_norm.reset();
      parameter.learned.reset();
    } else {
      ProbedTensor& tensor = probe.kind == PLUMB_PROBE_ACTIVATION
                                 ? At(activations++, &figures->activations)
                                 : At(gradients++, &figures->gradients);
      tensor.name = probe.name;
      tensor.figures = ToFigures(probe);
    }
  }
  figures->activations.resize(activations);
  figures->gradients.resize(gradients);
  figures->parameters.resize(parameters);
  return activations + gradients + parameters > 0;
}

}  // namespace

std::string WithProbe(const std::string& json, const ProbeOptions& options) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return json;
  object.erase("probe");
  if (options.every > 0) object["probe"] = {{"every", options.every}, {"points", options.points}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<ProbeOptions> ParseProbe(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  ProbeOptions options;
  if (!object.is_object() || !object.contains("probe")) return options;
  const Json& probe = object["probe"];
  const absl::Status error =
      absl::DataLossError("\"probe\" must be {\"every\": steps, \"points\": [names]}");
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

absl::StatusOr<const ProbeFigures*> RunProbe::Take(api::Trainer* trainer, bool diverged) {
  const int64_t last = figures_.diverged ? figures_.step : 0;
  if (!TakeFigures(*trainer, &figures_)) return nullptr;
  figures_.diverged = diverged;
  if (weights_ != nullptr && !diverged) PLUMB_RETURN_IF_ERROR(weights_->Add(trainer, &figures_));
  // If a step that diverged is tried again, it diverges again; it is logged only once.
  const bool again = diverged && figures_.step == last;
  if (path_.empty() || again) return &figures_;
  if (!writer_.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(ProbeWriter writer, ProbeWriter::Open(path_));
    writer_.emplace(std::move(writer));
  }
  PLUMB_RETURN_IF_ERROR(writer_->Append(figures_));
  return &figures_;
}

absl::Status RunProbe::Sync() { return writer_.has_value() ? writer_->Sync() : absl::OkStatus(); }

}  // namespace plumb
