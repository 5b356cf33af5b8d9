// SPDX-License-Identifier: Apache-2.0
// JsonFields: one object of a tokenizer.json, whose fields are taken by name. What is not taken is
// refused by Finish(), so that nothing that a file says is passed over in silence. Errors begin
// with the place: `model.merges[3]: ...`. Borrows the object.
#ifndef PLUMB_RUNTIME_TOKENIZER_JSON_FIELDS_H_
#define PLUMB_RUNTIME_TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/tokenizer/split_pattern.h"

namespace plumb {

class JsonFields {
 public:
  using Json = nlohmann::json;

  // InvalidArgument when `json` is no object.
  static absl::StatusOr<JsonFields> Of(const Json& json, std::string place);

  const std::string& place() const { return place_; }
  std::string PlaceOf(absl::string_view name) const;
  absl::Status Error(absl::string_view what) const;

  // The field, which counts as taken; nullptr when it is missing or null.
  const Json* Take(absl::string_view name);
  void Ignore(absl::string_view name) { Take(name); }

  // InvalidArgument when the field is there and of another type.
  absl::StatusOr<bool> Bool(absl::string_view name, bool otherwise);
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t otherwise);
  absl::StatusOr<std::string> String(absl::string_view name, absl::string_view otherwise);
  // The same of a field that must be there.
  absl::StatusOr<std::string> NeededString(absl::string_view name);
  absl::StatusOr<const Json*> NeededArray(absl::string_view name);

  // InvalidArgument when the field is there and says anything but `only`.
  absl::Status Only(absl::string_view name, const Json& only);

  // InvalidArgument for a field that was not taken, with the nearest of those that were.
  absl::Status Finish() const;

 private:
  JsonFields(const Json* json, std::string place) : json_(json), place_(std::move(place)) {}
  const Json* json_;
  std::string place_;
  std::vector<std::string> taken_;
};

// True for the UTF-8 of one character.
bool IsOneCharacter(absl::string_view text);

// `place: type "Foo" is not supported; plumb reads A, B and C`.
absl::Status UnsupportedType(const JsonFields& fields, absl::string_view type,
                             const std::vector<std::string>& supported);

// Field `pattern` of a tokenizer.json, {"String": text} or {"Regex": expression}.
struct JsonPattern {
  std::string literal;  // text of a String; empty for a Regex
  std::shared_ptr<const SplitPattern> pattern;
};

absl::StatusOr<JsonPattern> TakePattern(JsonFields* fields);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_JSON_FIELDS_H_
