// SPDX-License-Identifier: Apache-2.0
// Description of a norm as JSON. Fields: runtime/include/schemas/plugin.schema.json.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/spec/norm_example.h"

namespace plumb {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string ToText(const NormAttrValue& value) {
  if (const double* number = std::get_if<double>(&value)) return absl::StrCat(*number);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::get<std::string>(value);
}

// Returns "min..max", or "" if any value is valid.
std::string GetRange(const NormAttrSpec& spec) {
  const bool numeric = spec.type == NormAttrType::kDouble || spec.type == NormAttrType::kInt;
  if (!numeric || (std::isnan(spec.min) && std::isnan(spec.max))) return "";
  return absl::StrCat(std::isnan(spec.min) ? "-inf" : absl::StrCat(spec.min), "..",
                      std::isnan(spec.max) ? "inf" : absl::StrCat(spec.max));
}

const char* GetType(const NormAttrSpec& spec) {
  switch (spec.type) {
    case NormAttrType::kDouble:
      return "number";
    case NormAttrType::kInt:
      return "integer";
    case NormAttrType::kBool:
      return "bool";
    case NormAttrType::kEnum:
      return "enum";
    case NormAttrType::kString:
      break;
  }
  return "text";
}

OrderedJson ToJson(const std::vector<NormAttrSpec>& specs) {
  OrderedJson json = OrderedJson::array();
  for (const NormAttrSpec& spec : specs) {
    json.push_back({{"name", spec.name},
                    {"type", GetType(spec)},
                    {"choices", spec.choices},
                    {"range", GetRange(spec)},
                    {"default", spec.required ? "" : ToText(spec.default_value)},
                    {"required", spec.required},
                    {"doc", spec.doc}});
  }
  return json;
}

// Dimension that no plugin uses as a constant: an instance with it shows which dims of a shape are
// `dim`.
constexpr int64_t kProbeDim = 960;

OrderedJson ToJson(const std::vector<NormParam>& params) {
  OrderedJson json = OrderedJson::array();
  for (const NormParam& param : params) {
    std::vector<std::string> dims;
    for (const int64_t dim : param.dims) {
      dims.push_back(dim == kProbeDim ? "dim" : absl::StrCat(dim));
    }
    json.push_back({{"name", param.name},
                    {"shape", absl::StrCat("[", absl::StrJoin(dims, ", "), "]")},
                    {"init", param.InitToString()},
                    {"offset", param.offset},
                    {"doc", param.doc}});
  }
  return json;
}

std::vector<std::string> ListTraits(const NormPlugin& plugin) {
  const struct {
    bool holds;
    const char* name;
  } traits[] = {{plugin.identity(), "identity"},
                {plugin.cross_row(), "cross-row"},
                {plugin.cross_row_eval(), "cross-row in evaluation"},
                {plugin.two_inputs(), "two inputs"},
                {plugin.scale_invariant(), "scale-invariant"},
                {plugin.shift_invariant(), "shift-invariant"},
                {plugin.approximate_gradient(), "approximate gradient"},
                {plugin.in_place(), "in place"},
                {plugin.has_residual(), "residual extension"}};
  std::vector<std::string> names;
  for (const auto& trait : traits) {
    if (trait.holds) names.push_back(trait.name);
  }
  return names;
}

std::vector<std::string> ListDTypes(const NormPlugin& plugin) {
  std::vector<std::string> names;
  if (plugin.dtypes() & PLUMB_DTYPE_F32) names.push_back("f32");
  if (plugin.dtypes() & PLUMB_DTYPE_BF16) names.push_back("bf16");
  if (plugin.dtypes() & PLUMB_DTYPE_F64) names.push_back("f64");
  return names;
}

}  // namespace

absl::StatusOr<std::string> Runtime::DescribePluginJson(const std::string& id) {
  PLUMB_ASSIGN_OR_RETURN(const NormPlugin* plugin, impl_->plugins.Find(id));
  OrderedJson parameters = OrderedJson::array(), buffers = OrderedJson::array();
  if (const auto instance = plugin->Instantiate(kProbeDim, {}); instance.ok()) {
    parameters = ToJson((*instance)->params());
    buffers = ToJson((*instance)->buffers());
  }
  const OrderedJson json = {{"id", plugin->id()},
                            {"version", plugin->version()},
                            {"vendor", plugin->vendor()},
                            {"license", plugin->license()},
                            {"doc", plugin->doc()},
                            {"path", plugin->path()},
                            {"sha256", plugin->file_hash()},
                            {"code", plugin->code_file()},
                            {"attributes", ToJson(plugin->attrs())},
                            {"parameters", parameters},
                            {"buffers", buffers},
                            {"traits", ListTraits(*plugin)},
                            {"dtypes", ListDTypes(*plugin)},
                            {"example", NormExample(*plugin)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace plumb
