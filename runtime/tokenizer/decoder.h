// SPDX-License-Identifier: Apache-2.0
// Decoder: joins the pieces of tokens to a text, as a tokenizer.json specifies. Immutable,
// thread-safe.
#ifndef PLUMB_RUNTIME_TOKENIZER_DECODER_H_
#define PLUMB_RUNTIME_TOKENIZER_DECODER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Changes pieces in place, and may join them; the caller concatenates the rest. `continues` is
  // true if text came before, so that rules for the beginning of a text do not apply. Bytes are not
  // changed, even if they are not UTF-8.
  // Errors: kResourceExhausted if the text becomes longer than the budget allows.
  virtual absl::Status Apply(bool continues, WorkBudget* budget,
                             std::vector<std::string>* pieces) const = 0;

  // Returns true if pieces may be applied one after another: Apply(false, all) then equals
  // Apply(false, first) followed by Apply(true, each further piece), where `first` are the pieces
  // up to the first one with text. `fused` is true if an earlier step has joined the pieces. A
  // decoder that does not override this has its text only when all pieces are known.
  virtual bool Streams(bool fused) const {
    static_cast<void>(fused);
    return false;
  }
  // Returns true if it joins all pieces to one.
  virtual bool Fuses() const { return false; }

  // Reads the object at `place`; null puts spaces between pieces. Errors: kInvalidArgument with the
  // unsupported part.
  static absl::StatusOr<std::unique_ptr<const Decoder>> Read(const nlohmann::json* json,
                                                             const std::string& place);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_DECODER_H_
