// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/json_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {

absl::StatusOr<JsonFields> JsonFields::Of(const Json& json, std::string place) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": is not an object"));
  }
  return JsonFields(&json, std::move(place));
}

std::string JsonFields::GetPlace(absl::string_view name) const {
  return place_.empty() ? std::string(name) : absl::StrCat(place_, ".", name);
}

absl::Status JsonFields::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(place_, place_.empty() ? "" : ": ", what));
}

const JsonFields::Json* JsonFields::Take(absl::string_view name) {
  taken_.emplace_back(name);
  const Json* value = FindMember(*json_, name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<bool> JsonFields::Bool(absl::string_view name, bool otherwise) {
  const Json* value = Take(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return Error(absl::StrCat(name, " is neither true nor false"));
  return value->get<bool>();
}

absl::StatusOr<int64_t> JsonFields::Int(absl::string_view name, int64_t otherwise) {
  const Json* value = Take(name);
  if (value == nullptr) return otherwise;
  const absl::optional<int64_t> number = AsInt64(*value);
  if (!number) return Error(absl::StrCat(name, " is not a whole number"));
  return *number;
}

absl::StatusOr<std::string> JsonFields::String(absl::string_view name,
                                               absl::string_view otherwise) {
  const Json* value = Take(name);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) return Error(absl::StrCat(name, " is not a string"));
  return value->get<std::string>();
}

absl::StatusOr<std::string> JsonFields::NeededString(absl::string_view name) {
  if (FindMember(*json_, name) == nullptr) return Error(absl::StrCat(name, " is missing"));
  return String(name, "");
}

absl::StatusOr<const JsonFields::Json*> JsonFields::NeededArray(absl::string_view name) {
  const Json* value = Take(name);
  if (value == nullptr) return Error(absl::StrCat(name, " is missing"));
  if (!value->is_array()) return Error(absl::StrCat(name, " is not a list"));
  return value;
}

absl::Status JsonFields::Only(absl::string_view name, const Json& only) {
  const Json* value = Take(name);
  if (value == nullptr || *value == only) return absl::OkStatus();
  return Error(absl::StrCat(name, ": ", Excerpt(value->dump(-1, ' ', true)),
                            " is not supported; plumb reads ", only.dump()));
}

absl::Status JsonFields::Finish() const {
  for (const auto& [name, value] : json_->get_ref<const Json::object_t&>()) {
    if (std::find(taken_.begin(), taken_.end(), name) != taken_.end()) continue;
    return Error(
        absl::StrCat("field ", QuoteName(name), " is not supported", DidYouMean(name, taken_)));
  }
  return absl::OkStatus();
}

bool IsOneCharacter(absl::string_view text) {
  size_t offset = 0;
  return !text.empty() && NextCodePoint(text, &offset) && offset == text.size();
}

absl::Status UnsupportedType(const JsonFields& fields, absl::string_view type,
                             const std::vector<std::string>& supported) {
  return fields.Error(absl::StrCat("type ", QuoteName(type), " is not supported",
                                   DidYouMean(std::string(type), supported), "; plumb reads ",
                                   absl::StrJoin(supported, ", ")));
}

absl::StatusOr<JsonPattern> TakePattern(JsonFields* fields) {
  const nlohmann::json* json = fields->Take("pattern");
  if (json == nullptr) return fields->Error("pattern is missing");
  PLUMB_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*json, fields->GetPlace("pattern")));
  JsonPattern made;
  PLUMB_ASSIGN_OR_RETURN(made.literal, inner.String("String", ""));
  PLUMB_ASSIGN_OR_RETURN(const std::string regex, inner.String("Regex", ""));
  PLUMB_RETURN_IF_ERROR(inner.Finish());
  if (made.literal.empty() == regex.empty()) {
    return inner.Error("needs either String or Regex, and not an empty one");
  }
  absl::StatusOr<std::shared_ptr<const SplitPattern>> pattern =
      regex.empty() ? SplitPattern::Literal(made.literal) : SplitPattern::Compile(regex);
  if (!pattern.ok()) return Annotate(pattern.status(), absl::StrCat(inner.place(), ": "));
  made.pattern = *std::move(pattern);
  return made;
}

}  // namespace plumb
