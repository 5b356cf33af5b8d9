// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/norm_example.h"

#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plumb/v1/model.schema.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

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

}  // namespace

std::string NormExample(const NormPlugin& plugin) {
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

}  // namespace plumb
