// SPDX-License-Identifier: Apache-2.0
// Protobuf's text format: to a message, from a message, and one field from a path. Pure.
#ifndef PLUMB_RUNTIME_SCHEMA_READER_H_
#define PLUMB_RUNTIME_SCHEMA_READER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/schema/message.h"
#include "runtime/schema/schema.h"

namespace plumb::textproto {

// Location in a text, from 1; a column is a byte, or the way to the next multiple of 8 for a tab.
// 0: not in the text.
struct Location {
  int line = 0;
  int column = 0;
};

// Locations of the fields of a message in the text that it was read from. A value.
class Locations {
 public:
  // Of the field's name; of an element in a list "[...]", of the element.
  Location At(const Field& field, int index) const;
  // Of a nested message; null: not in the text.
  const Locations* Nested(const Field& field, int index) const;

  // Of the field's next element, in the order of the text.
  void Add(const Field& field, Location location);
  // Valid until the next call for this message.
  Locations* AddNested(const Field& field);

 private:
  std::map<int, std::vector<Location>> own_;  // by Field::index
  std::map<int, std::vector<Locations>> nested_;
};

// Reads `text` into `message` and where its fields stand into `locations`, both of which are new.
// Accepts what protobuf's own parser does (docs:
// https://protobuf.dev/reference/protobuf/textformat-spec), but for extensions and Any, strings
// that are not UTF-8, and "\U" beyond Unicode. Errors: all unknown fields up to the first other
// mistake, each as "file:line:column: what".
absl::Status ReadText(absl::string_view text, const std::string& file, Message* message,
                      Locations* locations);

// Returns a message in protobuf's text format: fields in the order of their numbers, one a line,
// nested ones indented; the bytes that protobuf's own TextFormat::Printer prints when UTF-8 need
// not be escaped.
std::string PrintText(const Message& message);

// Sets the scalar field at `path` ("n_layer", "attention.bias", "norm[0].attr[1].number") from
// text: strings without quotes, enums by name in either case. Errors name the path, and suggest the
// nearest field; messages on the way to it may have been made by then.
absl::Status SetField(Message* message, absl::string_view path, absl::string_view value);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_READER_H_
