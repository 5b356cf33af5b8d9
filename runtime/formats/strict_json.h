// SPDX-License-Identifier: Apache-2.0
// JSON as plumb reads it. Nothing throws; what the standard leaves ambiguous or what could exhaust
// memory is refused: a name twice in one object, nesting deeper than the format at hand has, text
// after the value, invalid UTF-8, numbers beyond a double. Internal to this module. Pure functions.
#ifndef PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
#define PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

// The one value in `text`. Objects come out sorted by name. Errors say where ("line 1, column 7").
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, int max_depth);

// The member `name` of an object; nullptr when it is missing or `value` is no object.
const nlohmann::json* FindMember(const nlohmann::json& value, absl::string_view name);

// The value as an integer; nullopt when it is not one or does not fit.
absl::optional<int64_t> AsInt64(const nlohmann::json& value);

// `text` in quotes with what JSON wants escaped. Bytes that are not UTF-8 become U+FFFD.
std::string QuoteJson(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
