// SPDX-License-Identifier: Apache-2.0
// Functions on the fields of a model's description, for import and export (family_template.h).
// Stateless.
#ifndef PLUMB_RUNTIME_ZOO_MODEL_FIELDS_H_
#define PLUMB_RUNTIME_ZOO_MODEL_FIELDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/diagnostics.h"
#include "runtime/schema/located.h"
#include "runtime/schema/message.h"

namespace plumb {

// Returns the shortest text that parses to the same number. Integers have no exponent.
std::string PlainNumber(double value);

// Returns the field `name` of an element of a repeated field; "" if it has none.
std::string GetName(const textproto::Message& message);

// Returns the value at a path (textproto::FindField) as a text that textproto::SetField accepts; a
// flag is 0 or 1, also if it is not set. All elements of a repeated number are separated by commas.
// Returns nullopt if another field is not set.
std::optional<std::string> FieldText(const textproto::Message& message, absl::string_view path);

// String in a message, or in a message in it. Borrows the message.
struct StringField {
  textproto::Message* message;
  const textproto::Field* field;
  int index;  // of an element; else 0
  SourceText text;
};

// Returns all strings that contain "${", in the order of the schema. `at` has their locations.
std::vector<StringField> StringFields(textproto::Message* message, const Located& at);

// Replaces a string.
void ReplaceString(const StringField& string, std::string text);

// Merges `from` into `to`: messages recursively, and so elements of a repeated field that have the
// same `name`; appends other elements, and replaces other fields. Two elements of `from` are not
// merged with each other. Requires: both have the same type.
void MergeFields(const textproto::Message& from, textproto::Message* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_MODEL_FIELDS_H_
