// SPDX-License-Identifier: Apache-2.0
// Text of a model for storing it: the self-contained description, and the norms that it runs.
#include <map>
#include <string>

#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/formats/strict_json.h"

namespace plumb::capi {
namespace {

std::string FormatNorms(const ResolvedModel& model) {
  std::map<std::string, std::string> norms;
  const auto add = [&norms](const NormBinding& norm) {
    norms[norm.plugin->id()] = norm.plugin->version();
  };
  for (const auto& block : model.layers) {
    if (block->norm.has_value()) add(*block->norm);
    for (const auto& [slot, norm] : block->slots) add(norm);
  }
  JsonWriter json;
  json.BeginObject();
  for (const auto& [id, version] : norms) json.Text(id, version);
  json.EndObject();
  return json.Take();
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_model_text(const plumb_model* model, char** text, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    return plumb::capi::WriteText(model->state->context->model.self_contained_text, text);
  });
}

plumb_status plumb_model_norms(const plumb_model* model, char** text, plumb_error** error) {
  return plumb::capi::Call(model, "model", error, [&]() -> absl::Status {
    return plumb::capi::WriteText(plumb::capi::FormatNorms(model->state->context->model), text);
  });
}
