// The field `pattern` of a tokenizer.json, {"String": text} or {"Regex": expression}.
#ifndef PLUMB_RUNTIME_TOKENIZER_JSON_PATTERN_H_
#define PLUMB_RUNTIME_TOKENIZER_JSON_PATTERN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/split_pattern.h"

namespace plumb {

struct JsonPattern {
  std::string literal;  // of a String; of a Regex empty
  std::shared_ptr<const SplitPattern> pattern;
};

absl::StatusOr<JsonPattern> TakePattern(JsonFields* fields);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_JSON_PATTERN_H_
