// Protobuf text with places: reading a message so that every field knows where it stood, and
// setting one field by its path. Internal to runtime/spec, the one folder that includes protobuf.
#ifndef PLUMB_RUNTIME_SPEC_PROTO_TEXT_H_
#define PLUMB_RUNTIME_SPEC_PROTO_TEXT_H_

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/spec/place.h"

namespace plumb {

using LocationTree = google::protobuf::TextFormat::ParseInfoTree;

// Parses `text` into `message` and records locations into `tree`. Errors: all unknown fields
// up to the first other error, each as "file:line:column: what" with the nearest name; strings that
// are not UTF-8.
absl::Status ParseProtoText(absl::string_view text, const std::string& file,
                            google::protobuf::Message* message, LocationTree* tree);

// Canonical text: fields in the schema's order.
std::string PrintProtoText(const google::protobuf::Message& message);

// Sets the scalar field at `path` ("n_layer", "attention.bias", "norm[0].attr[1].number") from
// text. Errors name the path, and suggest the nearest field.
absl::Status SetProtoField(google::protobuf::Message* message, absl::string_view path,
                           absl::string_view value);

// A message and where it was read. Places are those of field names in the file.
class Located {
 public:
  Located(std::string file, const google::protobuf::Message& message, const LocationTree* tree)
      : file_(std::move(file)), message_(&message), tree_(tree) {}

  // Of this message's field; `index` for repeated ones. Without a record: the file alone.
  Place At(const char* field, int index = -1) const;
  // A string field with its place.
  Text TextOf(const char* field, int index = -1) const;
  // A nested message.
  Located Nested(const char* field, int index = -1) const;

  const std::string& file() const { return file_; }

 private:
  std::string file_;
  const google::protobuf::Message* message_;
  const LocationTree* tree_;  // null: made by the program
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_PROTO_TEXT_H_
