// Normalizer: what a tokenizer.json does to a text before it is cut: normal forms, lower case,
// SentencePiece's marks for spaces. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_
#define PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Appends `text` normalized to `out`, which is another string. `begins`: whether it is the
  // beginning of what is encoded at once, and not what follows a byte that is no UTF-8.
  virtual absl::Status Append(absl::string_view text, bool begins, std::string* out) const = 0;
  // Whether `text` stays as it is, where that is quickly found.
  virtual bool Keeps(absl::string_view text) const = 0;

  // Reads the object at `place`; null gives a list of none. InvalidArgument names what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<Normalizer>> Read(const nlohmann::json* json,
                                                          const std::string& place);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_NORMALIZER_H_
