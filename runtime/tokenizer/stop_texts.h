// SPDX-License-Identifier: Apache-2.0
// StopTexts: filters generated text so that it ends before the first stop text. Text that may still
// become a stop text is held back. A value; thread-compatible.
//
// The text is read byte by byte (Knuth, Morris and Pratt 1977), so that the result does not depend
// on its division into tokens, and the cost per byte does not depend on its content. The stop text
// that is complete first counts; of several that end at the same byte, the longest one.
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
  StopTexts() = default;  // no stop texts: all text passes
  // Errors: kInvalidArgument for a stop text that is empty or not UTF-8.
  static absl::StatusOr<StopTexts> Create(const std::vector<std::string>& texts);

  // Appends `text` and returns the text that may be shown now. Requires: !stopped().
  std::string Add(absl::string_view text);
  // Returns true once the text contains a stop text; the text before it has then been returned.
  bool stopped() const { return stopped_; }
  // Returns the text that is still held back. To be called at the end of the text.
  std::string Rest();
  // Begins a new text.
  void Restart();

 private:
  struct Stop {
    std::string text;
    // For each length of a prefix: length of its longest proper prefix that is also a suffix.
    std::vector<size_t> border;
    size_t matched = 0;  // number of its bytes that match the end of the text
  };
  static void Advance(char byte, Stop* stop);

  std::vector<Stop> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_STOP_TEXTS_H_
