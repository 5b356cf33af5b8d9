// SPDX-License-Identifier: Apache-2.0
// Description of a norm as JSON. plumb.h lists the fields; they stay, and more may be added.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/status.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/capi/runtime_impl.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/schema/reader.h"

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
std::string RangeOf(const NormAttrSpec& spec) {
  const bool numeric = spec.type == NormAttrType::kDouble || spec.type == NormAttrType::kInt;
  if (!numeric || (std::isnan(spec.min) && std::isnan(spec.max))) return "";
  return absl::StrCat(std::isnan(spec.min) ? "-inf" : absl::StrCat(spec.min), "..",
                      std::isnan(spec.max) ? "inf" : absl::StrCat(spec.max));
}

OrderedJson ToJson(const std::vector<NormAttrSpec>& specs) {
  OrderedJson json = OrderedJson::array();
  for (const NormAttrSpec& spec : specs) {
    json.push_back({{"name", spec.name},
                    {"type", spec.TypeName()},
                    {"range", RangeOf(spec)},
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

// Returns the default of an attribute, or for a required one a value that its definition allows.
NormAttrValue SomeValue(const NormAttrSpec& spec) {
  if (!spec.required) return spec.default_value;
  const double number = std::isfinite(spec.min) ? spec.min : std::isfinite(spec.max) ? spec.max : 1;
  switch (spec.type) {
    case NormAttrType::kDouble:
      return number;
    case NormAttrType::kInt:
      return static_cast<int64_t>(std::ceil(number));
    case NormAttrType::kBool:
      return false;
    case NormAttrType::kEnum:
      return spec.choices.front();
    case NormAttrType::kString:
      break;
  }
  return std::string();
}

v1::Attribute ToAttribute(const NormAttrSpec& spec) {
  constexpr int64_t kMaxExactInteger = int64_t{1} << 53;
  v1::Attribute attribute;
  attribute.set_name(spec.name);
  const NormAttrValue value = SomeValue(spec);
  if (const double* number = std::get_if<double>(&value)) {
    attribute.set_number(*number);
  } else if (const bool* flag = std::get_if<bool>(&value)) {
    attribute.set_flag(*flag);
  } else if (const std::string* text = std::get_if<std::string>(&value)) {
    attribute.set_text(*text);
  } else if (const int64_t integer = std::get<int64_t>(value);
             integer < -kMaxExactInteger || integer > kMaxExactInteger) {
    attribute.set_text(absl::StrCat(integer));
  } else {
    attribute.set_number(static_cast<double>(integer));
  }
  return attribute;
}

// Returns the message in one line: name: "eps" number: 1e-05.
std::string InOneLine(const textproto::Message& message) {
  std::vector<std::string> lines =
      absl::StrSplit(textproto::PrintText(message), '\n', absl::SkipEmpty());
  for (std::string& line : lines) line = std::string(absl::StripLeadingAsciiWhitespace(line));
  return absl::StrJoin(lines, " ");
}

// Returns the lines of a model that use the norm, with all attributes.
std::string ExampleOf(const NormPlugin& plugin) {
  v1::Norm norm;
  norm.set_name("my_norm");
  norm.set_plugin(plugin.id());
  std::vector<std::string> required;
  for (const NormAttrSpec& spec : plugin.attrs()) {
    *norm.add_attr() = ToAttribute(spec);
    if (spec.required) required.push_back(spec.name);
  }
  if (plugin.cross_row()) norm.set_allow_cross_token(true);
  const char* const block = "block { placement: \"pre\" norm: \"my_norm\" }";
  const char* const block_of_two =
      "placement { name: \"two\" begin: \"e = x\" each: \"x = x + f(norm(x, e))\" }\n"
      "block { placement: \"two\" norm: \"my_norm\" }";
  return absl::StrCat(
      "norm { ", InOneLine(norm), " }",
      required.empty() ? "" : absl::StrCat("  # choose ", absl::StrJoin(required, ", ")), "\n",
      plugin.two_inputs() ? block_of_two : block, "\n");
}

std::vector<std::string> TraitsOf(const NormPlugin& plugin) {
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

std::vector<std::string> DTypesOf(const NormPlugin& plugin) {
  std::vector<std::string> names;
  if (plugin.dtypes() & PLUMB_F32) names.push_back("f32");
  if (plugin.dtypes() & PLUMB_BF16) names.push_back("bf16");
  if (plugin.dtypes() & PLUMB_F64) names.push_back("f64");
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
                            {"attributes", ToJson(plugin->attrs())},
                            {"parameters", parameters},
                            {"buffers", buffers},
                            {"traits", TraitsOf(*plugin)},
                            {"dtypes", DTypesOf(*plugin)},
                            {"example", ExampleOf(*plugin)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace plumb
