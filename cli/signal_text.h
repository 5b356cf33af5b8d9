// SPDX-License-Identifier: Apache-2.0
// SignalText: a message put together and written in a signal handler, where nothing may allocate. A
// value on the handler's stack.
#ifndef PLUMB_CLI_SIGNAL_TEXT_H_
#define PLUMB_CLI_SIGNAL_TEXT_H_

#include <cstddef>
#include <cstdint>

#include "runtime/app/plumb_api.h"

namespace plumb::cli {

class SignalText {
 public:
  SignalText& Add(const char* text);  // what does not fit is left out
  SignalText& Add(int64_t number);
  // "forward() of the norm \"org.example.a\"", and its file on a line of its own.
  SignalText& AddCall(const api::PluginCall& call);
  // Writes it and a line break to stderr; on a terminal, on a line of its own.
  void Write();

 private:
  char text_[8192];  // ids and a path fit
  size_t length_ = 0;
};

// Ends the process at once, without what it has not finished writing: no exit handler, no
// destructor.
[[noreturn]] void EndProcess(int exit_code);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_SIGNAL_TEXT_H_
