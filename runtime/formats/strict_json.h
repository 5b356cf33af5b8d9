// SPDX-License-Identifier: Apache-2.0
// Strict JSON: parsing and writing. Nothing throws. Ambiguous input, and input that could exhaust
// memory, is rejected: a name twice in one object, deeper nesting than the format has, text after
// the value, invalid UTF-8, numbers beyond a double. Pure functions.
#ifndef PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
#define PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

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

// Builds a JSON text incrementally. Members keep the order in which they are written. A value;
// thread-compatible.
class JsonWriter {
 public:
  // Requires: every Begin has its End, and in an object each value follows its name.
  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }

  void Name(absl::string_view name);
  // Writes a string. Bytes that are not UTF-8 become U+FFFD.
  void Text(absl::string_view value);
  void Number(int64_t value);
  void Flag(bool value);

  // Writes a member of an object.
  void Text(absl::string_view name, absl::string_view value) { Name(name), Text(value); }
  void Number(absl::string_view name, int64_t value) { Name(name), Number(value); }
  void Flag(absl::string_view name, bool value) { Name(name), Flag(value); }
  template <class Texts>
  void TextList(absl::string_view name, const Texts& values) {
    Name(name);
    BeginArray();
    for (const auto& value : values) Text(value);
    EndArray();
  }
  template <class Numbers>
  void NumberList(absl::string_view name, const Numbers& values) {
    Name(name);
    BeginArray();
    for (const auto value : values) Number(static_cast<int64_t>(value));
    EndArray();
  }

  std::string Take() { return std::move(text_); }

 private:
  // Writes the comma between this value and the previous one.
  void Separate();
  void Open(char bracket);
  void Close(char bracket);

  std::string text_;
  bool follows_ = false;  // true if a value precedes in the same object or array
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_STRICT_JSON_H_
