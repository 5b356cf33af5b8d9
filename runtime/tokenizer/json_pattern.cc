#include "runtime/tokenizer/json_pattern.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<JsonPattern> TakePattern(JsonFields* fields) {
  const nlohmann::json* json = fields->Take("pattern");
  if (json == nullptr) return fields->Error("pattern is missing");
  PLUMB_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*json, fields->PlaceOf("pattern")));
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
