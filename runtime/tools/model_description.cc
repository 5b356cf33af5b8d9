#include "runtime/tools/model_description.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

// Keeps the order of dims.
using DescriptionJson = nlohmann::ordered_json;

std::vector<TensorInfo> ReadTensors(const DescriptionJson& list) {
  std::vector<TensorInfo> tensors;
  for (const DescriptionJson& json : list) {
    TensorInfo& tensor = tensors.emplace_back();
    json.at("name").get_to(tensor.name);
    json.at("shape").get_to(tensor.shape);
    json.at("dtype").get_to(tensor.dtype);
    json.at("init").get_to(tensor.init);
    json.at("role").get_to(tensor.role);
    json.at("elements").get_to(tensor.elements);
  }
  return tensors;
}

std::vector<LayerGroupInfo> ReadLayers(const DescriptionJson& list) {
  std::vector<LayerGroupInfo> groups;
  for (const DescriptionJson& json : list) {
    LayerGroupInfo& group = groups.emplace_back();
    json.at("first").get_to(group.first);
    json.at("last").get_to(group.last);
    json.at("placement").get_to(group.placement);
    json.at("doc").get_to(group.doc);
    json.at("equations").get_to(group.equations);
    json.at("scalars").get_to(group.scalars);
    json.at("norms").get_to(group.norms);
    json.at("jacobian").get_to(group.jacobian);
  }
  return groups;
}

}  // namespace

absl::StatusOr<ModelDescription> ReadDescription(const std::string& text) {
  try {
    const DescriptionJson json = DescriptionJson::parse(text);
    ModelDescription read;
    json.at("name").get_to(read.name);
    for (const auto& [name, dim] : json.at("dims").items()) {
      read.dims.emplace_back(name, dim.get<int64_t>());
    }
    json.at("positions").get_to(read.positions);
    json.at("tied").get_to(read.tied);
    json.at("bidirectional").get_to(read.bidirectional);
    json.at("token_types").get_to(read.token_types);
    json.at("init_rules").get_to(read.init_rules);
    json.at("begin").get_to(read.begin);
    json.at("end").get_to(read.end);
    read.layers = ReadLayers(json.at("layers"));
    json.at("norm_sites").get_to(read.norm_sites);
    json.at("identity_route").get_to(read.identity_route);
    json.at("norms_before_head").get_to(read.norms_before_head);
    read.tensors = ReadTensors(json.at("tensors"));
    read.buffers = ReadTensors(json.at("buffers"));
    const DescriptionJson& totals = json.at("totals");
    totals.at("parameters").get_to(read.parameters);
    totals.at("active_parameters").get_to(read.active_parameters);
    totals.at("buffer_elements").get_to(read.buffer_elements);
    totals.at("weight_bytes").get_to(read.weight_bytes);
    totals.at("cache_bytes").get_to(read.cache_bytes);
    return read;
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(absl::StrCat("the model's description: ", error.what()));
  }
}

}  // namespace plumb
