// SPDX-License-Identifier: Apache-2.0
// JsonFields: one object of a tokenizer.json, whose fields are taken by name. Finish() rejects
// fields that were not taken, so that no setting of a file is silently ignored. Error messages
// begin with the location: `model.merges[3]: ...`. Borrows the object. Thread-compatible.
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

  // Errors: kInvalidArgument if `json` is not an object.
  static absl::StatusOr<JsonFields> Of(const Json& json, std::string place);

  const std::string& place() const { return place_; }
  std::string GetPlace(absl::string_view name) const;
  absl::Status Error(absl::string_view what) const;

  // Returns the field and marks it as taken; nullptr if it is missing or null.
  const Json* Take(absl::string_view name);
  void Ignore(absl::string_view name) { Take(name); }

  // Takes a field; a missing one has the value `otherwise`. Errors: kInvalidArgument if the type is
  // wrong.
  absl::StatusOr<bool> Bool(absl::string_view name, bool otherwise);
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t otherwise);
  absl::StatusOr<std::string> String(absl::string_view name, absl::string_view otherwise);
  // Takes a required field. Errors: also kInvalidArgument if it is missing.
  absl::StatusOr<std::string> NeededString(absl::string_view name);
  absl::StatusOr<const Json*> NeededArray(absl::string_view name);

  // Takes a field. Errors: kInvalidArgument if it is present and has another value than `only`.
  absl::Status Only(absl::string_view name, const Json& only);

  // Fails with kInvalidArgument if a field was not taken; suggests the nearest name that was.
  absl::Status Finish() const;

 private:
  JsonFields(const Json* json, std::string place) : json_(json), place_(std::move(place)) {}
  const Json* json_;
  std::string place_;
  std::vector<std::string> taken_;
};

// Returns true if `text` is the UTF-8 of exactly one character.
bool IsOneCharacter(absl::string_view text);

// Returns the error `place: type "Foo" is not supported; plumb reads A, B, C`.
absl::Status UnsupportedType(const JsonFields& fields, absl::string_view type,
                             const std::vector<std::string>& supported);

// Field `pattern` of a tokenizer.json: {"String": text} or {"Regex": expression}.
struct JsonPattern {
  std::string literal;  // the text of a String; empty for a Regex
  std::shared_ptr<const SplitPattern> pattern;
};

absl::StatusOr<JsonPattern> TakePattern(JsonFields* fields);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_JSON_FIELDS_H_
