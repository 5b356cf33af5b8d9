// SPDX-License-Identifier: Apache-2.0
// NormPlugin::CheckAttrs: checks a user's attributes against the plugin's definitions.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {
namespace {

constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

// Returns "the number 3", "the text \"a\"", "true".
std::string Describe(const NormAttrValue& value) {
  if (const double* number = std::get_if<double>(&value))
    return absl::StrCat("the number ", *number);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) {
    return absl::StrCat("the number ", *integer);
  }
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return absl::StrCat("the text \"", std::get<std::string>(value), "\"");
}

std::string DescribeRange(const NormAttrSpec& spec) {
  if (std::isnan(spec.min)) return absl::StrCat("at most ", spec.max);
  if (std::isnan(spec.max)) return absl::StrCat("at least ", spec.min);
  return absl::StrCat("in [", spec.min, ", ", spec.max, "]");
}

std::string CheckNumber(const NormAttrSpec& spec, double value) {
  if (!std::isfinite(value)) return absl::StrCat("must be finite, not ", value);
  if (value < spec.min || value > spec.max) {
    return absl::StrCat("must be ", DescribeRange(spec), ", not ", value);
  }
  if (spec.type != NormAttrType::kInt) return "";
  if (value != std::trunc(value)) return absl::StrCat("must be a whole number, not ", value);
  if (std::fabs(value) > kMaxExactInteger) {
    return absl::StrCat("is too large for a number: ", value, "; give its digits as text");
  }
  return "";
}

std::string CheckInteger(const NormAttrSpec& spec, int64_t value) {
  const auto wide = static_cast<long double>(value);  // exact, unlike a double
  if (wide < static_cast<long double>(spec.min) || wide > static_cast<long double>(spec.max)) {
    return absl::StrCat("must be ", DescribeRange(spec), ", not ", value);
  }
  return "";
}

// Converts a value to the attribute's type. An integer may be written as an integer, as a number
// without a fraction, or as a string of its digits.
NormAttrValue AsTyped(const NormAttrSpec& spec, const NormAttrValue& value) {
  if (spec.type != NormAttrType::kInt) return value;
  int64_t integer = 0;
  const std::string* text = std::get_if<std::string>(&value);
  if (text != nullptr && absl::SimpleAtoi(*text, &integer)) return integer;
  const double* number = std::get_if<double>(&value);
  if (number != nullptr && CheckNumber(spec, *number).empty()) {
    return static_cast<int64_t>(*number);
  }
  return value;
}

std::string CheckText(const NormAttrSpec& spec, const std::string& text) {
  if (spec.type == NormAttrType::kString) {
    if (text.size() > kMaxNormTextLength) {
      return absl::StrCat("must have at most ", kMaxNormTextLength, " characters");
    }
    return text.find('\0') == std::string::npos ? "" : "must not contain a NUL character";
  }
  if (std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end()) return "";
  return absl::StrCat("must be ", spec.TypeName(), ", not \"", text, "\"",
                      DidYouMean(text, spec.choices));
}

// Returns why the attribute cannot have `value`; "" if it can.
std::string Objection(const NormAttrSpec& spec, const NormAttrValue& value) {
  const double* number = std::get_if<double>(&value);
  const int64_t* integer = std::get_if<int64_t>(&value);
  const std::string* text = std::get_if<std::string>(&value);
  switch (spec.type) {
    case NormAttrType::kDouble:
    case NormAttrType::kInt:
      if (number != nullptr) return CheckNumber(spec, *number);
      if (integer != nullptr) return CheckInteger(spec, *integer);
      break;
    case NormAttrType::kBool:
      if (std::holds_alternative<bool>(value)) return "";
      break;
    case NormAttrType::kEnum:
    case NormAttrType::kString:
      if (text != nullptr) return CheckText(spec, *text);
      break;
  }
  return absl::StrCat("wants ", spec.TypeName(), ", not ", Describe(value));
}

}  // namespace

std::string NormAttrSpec::TypeName() const {
  switch (type) {
    case NormAttrType::kDouble:
      return "number";
    case NormAttrType::kInt:
      return "integer";
    case NormAttrType::kBool:
      return "bool";
    case NormAttrType::kEnum:
      return absl::StrCat("one of ", absl::StrJoin(choices, ", "));
    case NormAttrType::kString:
      return "text";
  }
  return "";
}

absl::StatusOr<std::vector<NormAttrValue>> NormPlugin::CheckAttrs(const NormAttrs& attrs) const {
  std::vector<std::string> errors, names;
  for (const NormAttrSpec& spec : attrs_) names.push_back(spec.name);
  for (const auto& [name, value] : attrs) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string hint = DidYouMean(name, names);
    if (hint.empty()) {
      hint =
          names.empty() ? "; it has none" : absl::StrCat("; it has ", absl::StrJoin(names, ", "));
    }
    errors.push_back(absl::StrCat(id_, ": unknown attribute \"", name, "\"", hint));
  }
  std::vector<NormAttrValue> values;
  for (const NormAttrSpec& spec : attrs_) {
    const auto given = attrs.find(spec.name);
    if (given == attrs.end()) {
      if (spec.required) {
        errors.push_back(absl::StrCat(id_, ": attribute \"", spec.name, "\" (", spec.TypeName(),
                                      ") must be set"));
      }
      values.push_back(spec.default_value);
      continue;
    }
    const NormAttrValue value = AsTyped(spec, given->second);
    const std::string objection = Objection(spec, value);
    if (!objection.empty()) {
      errors.push_back(absl::StrCat(id_, ": attribute \"", spec.name, "\" ", objection));
    }
    values.push_back(value);
  }
  if (!errors.empty()) return absl::InvalidArgumentError(ListDiagnostics(errors));
  return values;
}

}  // namespace plumb
