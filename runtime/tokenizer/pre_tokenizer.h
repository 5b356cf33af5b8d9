// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: splits a text into the pieces for the model, mostly words, as a tokenizer.json
// specifies. It is a sequence of steps, each of which splits the pieces of the previous one.
// Immutable, thread-safe; a PreTokenizerRunner holds the mutable state of one thread.
#ifndef PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
#define PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/split_pattern.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

// Consumes a piece for the model. The piece is valid only during the call.
using PreTokenSink = absl::FunctionRef<absl::Status(absl::string_view piece)>;

// Position of the text that is split.
struct SplitContext {
  WorkBudget* budget;          // not null
  bool begins_text = true;     // at the beginning of the encoded text
  bool begins_segment = true;  // at the beginning of the text between added tokens
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Splits a text. Requires: `text` is UTF-8; `matcher` is for pattern(), or null if that is null.
  virtual absl::Status Split(absl::string_view text, const SplitContext& context,
                             SplitMatcher* matcher, PreTokenSink sink) const = 0;
  virtual std::shared_ptr<const SplitPattern> pattern() const { return nullptr; }
};

class PreTokenizer {
 public:
  // Reads the object at `place`; null does not split. Errors: kInvalidArgument with the unsupported
  // part.
  static absl::StatusOr<std::unique_ptr<const PreTokenizer>> Read(const nlohmann::json* json,
                                                                  const std::string& place);

  // Returns true if the model's vocabulary uses the alphabet of byte_alphabet.h.
  bool byte_level() const { return byte_level_; }
  // Returns true if pieces are in this alphabet, because a later step tests its characters, and not
  // in bytes.
  bool maps_bytes() const { return maps_bytes_; }
  bool cuts() const { return !steps_.empty(); }

 private:
  friend class PreTokenizerRunner;
  absl::Status AddStep(const nlohmann::json& json, const std::string& place);
  absl::Status AddByteLevel(class JsonFields* fields);

  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool byte_level_ = false, maps_bytes_ = false;
};

// Runs a PreTokenizer, which it borrows, in one thread. Thread-compatible.
class PreTokenizerRunner {
 public:
  explicit PreTokenizerRunner(const PreTokenizer* pre_tokenizer);
  absl::Status Split(absl::string_view text, const SplitContext& context, PreTokenSink sink) {
    return SplitFrom(0, text, context, sink);
  }

 private:
  absl::Status SplitFrom(size_t step, absl::string_view text, const SplitContext& context,
                         PreTokenSink sink);
  const PreTokenizer* pre_tokenizer_;
  std::vector<std::unique_ptr<SplitMatcher>> matchers_;  // one per step; null without a pattern
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
