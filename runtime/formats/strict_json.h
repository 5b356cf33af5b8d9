// SPDX-License-Identifier: Apache-2.0
// Strict JSON parsing. Nothing throws. Ambiguous input, and input that could exhaust memory, is
// rejected: a name twice in one object, deeper nesting than the format has, text after the value,
// invalid UTF-8, numbers beyond a double. Pure functions.
#ifndef PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
#define PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

// Parses the one value in `text`. Objects are sorted by name. Errors: kInvalidArgument with the
// location ("line 1, column 7").
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, int max_depth);

// Returns the member `name` of an object; nullptr if it is missing or `value` is no object.
const nlohmann::json* FindMember(const nlohmann::json& value, absl::string_view name);

// Returns the member `name` of an object if it is a string, otherwise "".
std::string TextMember(const nlohmann::json& value, absl::string_view name);

// Returns the value as an integer; nullopt if it is not one or does not fit.
absl::optional<int64_t> AsInt64(const nlohmann::json& value);

// Returns `text` in quotes, escaped for JSON. Bytes that are not UTF-8 become U+FFFD.
std::string QuoteJson(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
