// SPDX-License-Identifier: Apache-2.0
#include "runtime/pytorch/norms.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/pytorch/code.h"

namespace plumb {
namespace {

// Returns the class of a norm that ships with plumb; "" for another.
std::string ShippedClass(const NormPlugin& plugin) {
  return ShippedCode(absl::StrCat("pytorch/", plugin.id()));
}

std::string ValueCode(const std::string& name, const NormAttrValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* text = std::get_if<std::string>(&value)) return absl::StrCat("\"", *text, "\"");
  if (const auto* whole = std::get_if<int64_t>(&value)) return MarkNumber(name, *whole);
  return MarkNumber(name, std::get<double>(value));
}

// Returns the name of the norm's class: "RMSNorm".
std::string NormClassName(const NormPlugin& plugin) {
  const std::string text = ShippedClass(plugin);
  if (const size_t at = text.find("class "); at != std::string::npos) {
    return text.substr(at + 6, text.find('(', at) - at - 6);
  }
  return absl::StrReplaceAll(plugin.id(), {{".", "_"}, {"-", "_"}});
}

}  // namespace

absl::StatusOr<std::string> MakeNorm(const NormPlugin& plugin, const NormAttrs& attrs,
                                     int64_t dim) {
  if (plugin.cross_row()) {
    return Unsupported(absl::StrCat("the norm ", plugin.id(),
                                    " has statistics over tokens, which is not covered"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<NormAttrValue> values, plugin.CheckAttrs(attrs));
  std::string code = absl::StrCat(NormClassName(plugin), "(", MarkNumber("dim", dim));
  for (size_t i = 0; i < values.size(); ++i) {
    const NormAttrSpec& attr = plugin.attrs()[i];
    const std::string value = ValueCode(attr.name, values[i]);
    if (!attr.required && value == ValueCode(attr.name, attr.default_value)) continue;
    absl::StrAppend(&code, ", ", attr.name, "=", value);
  }
  return absl::StrCat(code, ")");
}

std::string NormClassText(const NormInstance& instance) {
  const NormPlugin& plugin = instance.plugin();
  if (std::string text = ShippedClass(plugin); !text.empty()) return text;
  std::vector<std::string> arguments = {"self", "dim"};
  std::string parameters;
  for (const NormAttrSpec& attr : plugin.attrs()) {
    const std::string value = Unmark(ValueCode(attr.name, attr.default_value));
    arguments.push_back(absl::StrCat(attr.name, "=", value));
    absl::StrAppend(&parameters, "self.", attr.name, " = ", attr.name, "\n");
  }
  for (const NormParam& param : instance.params()) {
    std::vector<std::string> dims;
    for (const int64_t size : param.dims) {
      dims.push_back(size == instance.dim() ? "dim" : absl::StrCat(size));
    }
    if (dims.empty()) dims = {"()"};
    absl::StrAppend(&parameters, "self.", param.name, " = ", ParameterCode(dims), "  # ", param.doc,
                    "\n");
  }
  const std::string text = absl::StrReplaceAll(ShippedCode("templates/norm_plugin"),
                                               {{"NAME", NormClassName(plugin)},
                                                {"ID", plugin.id()},
                                                {"ARGUMENTS", absl::StrJoin(arguments, ", ")},
                                                {"INPUTS", instance.two_inputs() ? "x, x2" : "x"}});
  return FillIn(text, {{"parameters", parameters}});
}

}  // namespace plumb
