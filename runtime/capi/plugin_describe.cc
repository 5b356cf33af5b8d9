// plumb_plugin_describe: a norm as it describes itself, as JSON. plumb.h lists the fields.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

namespace plumb::capi {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const std::vector<PluginParameter>& parameters) {
  Json json = Json::array();
  for (const PluginParameter& parameter : parameters) {
    json.push_back({{"name", parameter.name},
                    {"shape", parameter.shape},
                    {"init", parameter.init},
                    {"offset", parameter.offset},
                    {"doc", parameter.doc}});
  }
  return json;
}

Json ToJson(const std::vector<PluginAttribute>& attributes) {
  Json json = Json::array();
  for (const PluginAttribute& attribute : attributes) {
    json.push_back({{"name", attribute.name},
                    {"type", attribute.type},
                    {"range", attribute.range},
                    {"default", attribute.default_value},
                    {"required", attribute.required},
                    {"doc", attribute.doc}});
  }
  return json;
}

std::string ToText(const PluginInfo& plugin) {
  const Json json = {{"id", plugin.id},
                     {"version", plugin.version},
                     {"vendor", plugin.vendor},
                     {"license", plugin.license},
                     {"doc", plugin.doc},
                     {"path", plugin.path},
                     {"attributes", ToJson(plugin.attributes)},
                     {"parameters", ToJson(plugin.parameters)},
                     {"buffers", ToJson(plugin.buffers)},
                     {"traits", plugin.traits},
                     {"dtypes", plugin.dtypes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace
}  // namespace plumb::capi

plumb_status plumb_plugin_describe(plumb_runtime* runtime, const char* id, char* buffer,
                                   size_t capacity, size_t* needed, plumb_error** error) {
  return plumb::capi::Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (id == nullptr) return plumb::capi::NullArgument("id");
    const absl::StatusOr<plumb::PluginInfo> plugin = runtime->state->runtime->DescribePlugin(id);
    runtime->state->TellWarnings();
    if (!plugin.ok()) return plugin.status();
    plumb::capi::GiveText(plumb::capi::ToText(*plugin), buffer, capacity, needed);
    return absl::OkStatus();
  });
}
