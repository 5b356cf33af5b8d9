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

  // Reads the object at `place`; null puts spaces between pieces. InvalidArgument names what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<const Decoder>> Read(const nlohmann::json* json,
                                                             const std::string& place);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_DECODER_H_
