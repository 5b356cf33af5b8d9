// SPDX-License-Identifier: Apache-2.0
// StopTexts: text on its way to a reader, which ends before the first stop text in it. What may
// still become one is held back. A value; copies share nothing. Thread-compatible.
//
// The text is read byte by byte (Knuth, Morris and Pratt 1977), so that the result does not depend
// on how it is cut into tokens, and a byte costs the same whatever the stop texts are. The stop
// text that is complete first counts; of several that end at the same byte, the longest.
#ifndef PLUMB_RUNTIME_TOKENIZER_STOP_TEXTS_H_
#define PLUMB_RUNTIME_TOKENIZER_STOP_TEXTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class StopTexts {
 public:
  StopTexts() = default;  // none: text passes as it comes
  // Errors: kInvalidArgument for a stop text that is empty, or not UTF-8.
  static absl::StatusOr<StopTexts> Create(const std::vector<std::string>& texts);

  // Appends `text`. Returns what a reader can be shown by now. Requires: not stopped.
  std::string Add(absl::string_view text);
  // True once the text contains a stop text. The text before it has then been returned.
  bool stopped() const { return stopped_; }
  // Returns what is still held back, when no more text comes.
  std::string Rest();
  // Begins a new text.
  void Restart();

 private:
  struct Stop {
    std::string text;
    // Length of the longest proper prefix that is a suffix, too, by length of a prefix.
    std::vector<size_t> border;
    size_t matched = 0;  // bytes of it that the text ends with
  };
  static void Advance(char byte, Stop* stop);

  std::vector<Stop> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_STOP_TEXTS_H_
