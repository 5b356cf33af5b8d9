// SPDX-License-Identifier: Apache-2.0
// SignalText: a message that is built and written in a signal handler, where nothing may allocate.
// A value on the handler's stack.
#ifndef PLUMB_CLI_SIGNAL_TEXT_H_
#define PLUMB_CLI_SIGNAL_TEXT_H_

#include <cstddef>
#include <cstdint>

#include "runtime/client/plumb_api.h"

namespace plumb::cli {

class SignalText {
 public:
  SignalText& Add(const char* text);  // drops what does not fit
  SignalText& Add(int64_t number);
  // Adds "forward() of the norm \"org.example.a\"", and its file on a separate line.
  SignalText& AddCall(const api::PluginCall& call);
  // Writes the text and a newline to stderr; on a terminal, starts a new line first.
  void Write();

 private:
  char text_[8192];  // enough for ids and a path
  size_t length_ = 0;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SIGNAL_TEXT_H_
