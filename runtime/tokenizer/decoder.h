// SPDX-License-Identifier: Apache-2.0
// Decoder: how a tokenizer.json puts pieces together to a text again. Immutable, thread-safe.
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

  // Changes pieces in place, and may join them; what remains is put together. `continues` is true
  // if text came before, so that nothing is done that is done at a beginning. Bytes come out as
  // they are, whether they are UTF-8 or not.
  // Errors: ResourceExhausted if the text becomes longer than the budget allows.
  virtual absl::Status Apply(bool continues, WorkBudget* budget,
                             std::vector<std::string>* pieces) const = 0;

  // Returns true if pieces may be applied one after the other: Apply(false, all) gives the text of
  // Apply(false, the first), followed by those of Apply(true, each further one), where "the first"
  // are as many as it takes until their text is not empty. `fused`: the pieces have been joined to
  // one before. A decoder that does not override this has its text only when all pieces are known.
  virtual bool Streams(bool fused) const {
    static_cast<void>(fused);
    return false;
  }
  // Returns true if it joins all pieces to one.
  virtual bool Fuses() const { return false; }

  // Reads the object at `place`; null puts spaces between pieces. InvalidArgument names what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<const Decoder>> Read(const nlohmann::json* json,
                                                             const std::string& place);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_DECODER_H_
