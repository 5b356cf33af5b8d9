// One field of a message from a path and a text, as a command line gives them.
#ifndef PLUMB_RUNTIME_TEXTPROTO_SET_FIELD_H_
#define PLUMB_RUNTIME_TEXTPROTO_SET_FIELD_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/textproto/message.h"

namespace plumb::textproto {

// Sets the scalar field at `path` ("n_layer", "attention.bias", "norm[0].attr[1].number") from
// text: strings without quotes, enums by name in either case. Errors name the path, and suggest the
// nearest field; messages on the way to it may have been made by then.
absl::Status SetField(Message* message, absl::string_view path, absl::string_view value);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_TEXTPROTO_SET_FIELD_H_
