// What a model is, for whoever keeps it: its whole text, and the norms that it runs.
#include <nlohmann/json.hpp>

#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

namespace plumb::capi {
namespace {

std::string NormsOf(const ResolvedModel& model) {
  nlohmann::json norms = nlohmann::json::object();
  const auto add = [&norms](const NormBinding& norm) {
    norms[norm.plugin->id()] = norm.plugin->version();
  };
  for (const auto& block : model.layers) {
    if (block->norm.has_value()) add(*block->norm);
    for (const auto& [slot, norm] : block->slots) add(norm);
  }
  return norms.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_model_text(const plumb_model* model, char* buffer, size_t capacity,
                              size_t* needed, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    plumb::capi::GiveText(model->state->context->model.self_contained_text, buffer, capacity,
                          needed);
    return absl::OkStatus();
  });
}

plumb_status plumb_model_norms(const plumb_model* model, char* buffer, size_t capacity,
                               size_t* needed, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    plumb::capi::GiveText(plumb::capi::NormsOf(model->state->context->model), buffer, capacity,
                          needed);
    return absl::OkStatus();
  });
}
