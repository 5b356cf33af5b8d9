// SPDX-License-Identifier: Apache-2.0
#include "cli/signal_text.h"

#include <termios.h>
#include <unistd.h>

namespace plumb::cli {

SignalText& SignalText::Add(const char* text) {
  while (*text != '\0' && length_ + 1 < sizeof(text_)) text_[length_++] = *text++;
  return *this;
}

SignalText& SignalText::Add(int64_t number) {
  char digits[24];
  char* at = digits + sizeof(digits);
  *--at = '\0';
  uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  do *--at = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (number < 0) *--at = '-';
  return Add(at);
}

SignalText& SignalText::AddCall(const api::PluginCall& call) {
  Add(call.function).Add("() of the norm \"").Add(call.norm).Add("\"");
  if (*call.file == '\0') return Add(", which is linked into this program");
  return Add("\nin ").Add(call.file).Add("\nsee: plumb plugin check ").Add(call.file);
}

void SignalText::Write() {
  struct termios terminal;
  // A progress line may be open on the terminal.
  if (tcgetattr(STDERR_FILENO, &terminal) == 0 && write(STDERR_FILENO, "\n", 1) != 1) return;
  text_[length_++] = '\n';
  for (size_t done = 0; done < length_;) {
    const ssize_t n = write(STDERR_FILENO, text_ + done, length_ - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace plumb::cli
