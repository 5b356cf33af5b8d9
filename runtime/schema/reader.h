// SPDX-License-Identifier: Apache-2.0
// Parses and prints messages in protobuf's text format, and finds and sets fields by their paths.
// Pure functions.
#ifndef PLUMB_RUNTIME_SCHEMA_READER_H_
#define PLUMB_RUNTIME_SCHEMA_READER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/schema/lexer.h"
#include "runtime/schema/message.h"
#include "runtime/schema/schema.h"

namespace plumb::textproto {

// Locations of the fields of a message in the text that it was read from. A value.
class Locations {
 public:
  // Returns the location of the field's name; for an element of a list "[...]", of the element.
  Location At(const Field& field, int index) const;
  // Returns the locations in a nested message; null if it is not in the text.
  const Locations* Nested(const Field& field, int index) const;

  // Adds the location of the field's next element, in the order of the text.
  void Add(const Field& field, Location location);
  // Adds a nested message. The result is valid until the next call for this message.
  Locations* AddNested(const Field& field);

 private:
  std::map<int, std::vector<Location>> own_;  // key: Field::index
  std::map<int, std::vector<Locations>> nested_;
};

// Parses `text` into `message`, and the locations of its fields into `locations`; both must be new.
// Accepts the same language as protobuf's own parser
// (https://protobuf.dev/reference/protobuf/textformat-spec), except extensions and Any, strings
// that are not UTF-8, and "\U" beyond Unicode. Errors: kInvalidArgument with all unknown fields up
// to the first other error, each as "file:line:column: message".
absl::Status ReadText(absl::string_view text, const std::string& file, Message* message,
                      Locations* locations);

// Returns a message in protobuf's text format: fields ordered by number, one per line, nested ones
// indented. The output is byte-identical to that of protobuf's TextFormat::Printer with unescaped
// UTF-8.
std::string PrintText(const Message& message);
// Returns the lines of one field in PrintText; "" if it is not set.
std::string PrintField(const Message& message, const Field& field);

// Field that is no message, found by its path.
struct FieldAtPath {
  const Message* message;  // message that contains the field; an empty one if it is not present
  const Field* field;
  int index;  // of an element; -1: the field is not repeated, or all of it
};

// Finds the field at `path`: "n_layer", "attention.bias", "norm[0].attr[eps].number". Elements are
// given by index, or by the value of their field `name`. The result borrows `message`. Errors:
// kInvalidArgument with the path and the nearest name.
absl::StatusOr<FieldAtPath> FindField(const Message& message, absl::string_view path);

// Sets the field at `path` from text: strings without quotes, enums by name in any case, all
// elements of a repeated number as "1, 2.5". The next index of a repeated string appends one.
// Errors: those of FindField, and kInvalidArgument for the value; messages along the path may have
// been created by then.
absl::Status SetField(Message* message, absl::string_view path, absl::string_view value);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_READER_H_
