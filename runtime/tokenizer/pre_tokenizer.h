// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: how a tokenizer.json cuts a text into the pieces that its model sees: words,
// mostly. A sequence of steps, each of which cuts what the one before it gave. Immutable,
// thread-safe; what a thread needs to run one is a Cutter.
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

// A piece for the model, valid until the call returns.
using CutSink = absl::FunctionRef<absl::Status(absl::string_view piece)>;

// What is being cut.
struct CutContext {
  WorkBudget* budget;          // not null
  bool begins_text = true;     // of all that is encoded
  bool begins_segment = true;  // of what stands between added tokens
};

class CutStep {
 public:
  virtual ~CutStep() = default;
  // REQUIRES: `text` is UTF-8; `matcher` is one of pattern(), or null where that is.
  virtual absl::Status Cut(absl::string_view text, const CutContext& context, SplitMatcher* matcher,
                           CutSink sink) const = 0;
  virtual std::shared_ptr<const SplitPattern> pattern() const { return nullptr; }
};

class PreTokenizer {
 public:
  // Reads the object at `place`; null is no cut at all. InvalidArgument names what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<const PreTokenizer>> Read(const nlohmann::json* json,
                                                                  const std::string& place);

  // Whether the model sees bytes in the alphabet of byte_alphabet.h.
  bool byte_level() const { return byte_level_; }
  // Whether pieces come in its characters, because a later step looks at them, and not as bytes.
  bool maps_bytes() const { return maps_bytes_; }
  bool cuts() const { return !steps_.empty(); }

 private:
  friend class Cutter;
  absl::Status AddStep(const nlohmann::json& json, const std::string& place);
  absl::Status AddByteLevel(class JsonFields* fields);

  std::vector<std::unique_ptr<CutStep>> steps_;
  bool byte_level_ = false, maps_bytes_ = false;
};

// Thread-compatible. Borrows the PreTokenizer.
class Cutter {
 public:
  explicit Cutter(const PreTokenizer* pre_tokenizer);
  absl::Status Cut(absl::string_view text, const CutContext& context, CutSink sink) {
    return CutFrom(0, text, context, sink);
  }

 private:
  absl::Status CutFrom(size_t step, absl::string_view text, const CutContext& context,
                       CutSink sink);
  const PreTokenizer* pre_tokenizer_;
  std::vector<std::unique_ptr<SplitMatcher>> matchers_;  // by step
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
