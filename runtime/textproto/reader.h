// Protobuf's text format to a message.
#ifndef PLUMB_RUNTIME_TEXTPROTO_READER_H_
#define PLUMB_RUNTIME_TEXTPROTO_READER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/textproto/locations.h"
#include "runtime/textproto/message.h"

namespace plumb::textproto {

// Reads `text` into `message` and where its fields stand into `locations`, both of which are new.
// Accepts what protobuf's own parser does (docs:
// https://protobuf.dev/reference/protobuf/textformat-spec), but for extensions and Any, strings
// that are not UTF-8, and "\U" beyond Unicode. Errors: all unknown fields up to the first other
// mistake, each as "file:line:column: what".
absl::Status ReadText(absl::string_view text, const std::string& file, Message* message,
                      Locations* locations);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_TEXTPROTO_READER_H_
