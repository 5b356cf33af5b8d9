// SPDX-License-Identifier: Apache-2.0
// PostProcessor: tokens that a tokenizer.json puts before and after a text: [CLS] and [SEP], <s>. A
// value.
#ifndef PLUMB_RUNTIME_TOKENIZER_POST_PROCESSOR_H_
#define PLUMB_RUNTIME_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumb {

struct PostProcessor {
  std::vector<int32_t> before, after;
};

// Reads the object at `place`; null adds no tokens. Errors: kInvalidArgument for ids that are not
// below `vocab_size`, and for unsupported parts.
absl::StatusOr<PostProcessor> ReadPostProcessor(const nlohmann::json* json,
                                                const std::string& place, int32_t vocab_size);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_POST_PROCESSOR_H_
