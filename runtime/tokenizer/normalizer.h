// SPDX-License-Identifier: Apache-2.0
// Normalizer: changes a text before it is split, as a tokenizer.json specifies: normal forms, lower
// case, SentencePiece's marks for spaces. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_
#define PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/work_budget.h"

namespace plumb {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Appends the normalized `text` to `out`, which must not alias it. `begins` is true at the
  // beginning of a stretch between added tokens, and false after bytes that are not UTF-8.
  // Errors: kResourceExhausted if the text becomes longer than the budget allows.
  virtual absl::Status Append(absl::string_view text, bool begins, WorkBudget* budget,
                              std::string* out) const = 0;
  // Returns true if `text` certainly stays as it is.
  virtual bool Keeps(absl::string_view text) const = 0;

  // Reads the object at `place`; null returns a normalizer that changes nothing. Errors:
  // kInvalidArgument with the unsupported part.
  static absl::StatusOr<std::unique_ptr<Normalizer>> Read(const nlohmann::json* json,
                                                          const std::string& place);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_
