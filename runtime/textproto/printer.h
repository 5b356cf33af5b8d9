// A message as protobuf's text format.
#ifndef PLUMB_RUNTIME_TEXTPROTO_PRINTER_H_
#define PLUMB_RUNTIME_TEXTPROTO_PRINTER_H_

#include <string>

#include "runtime/textproto/message.h"

namespace plumb::textproto {

// Fields in the order of their numbers, one a line, nested ones indented; the bytes that protobuf's
// own TextFormat::Printer prints when UTF-8 need not be escaped.
std::string PrintText(const Message& message);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_TEXTPROTO_PRINTER_H_
