// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json puts before and after a text: [CLS] and [SEP], <s>. A value.
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

// Reads the object at `place`; null puts nothing. Ids are below `vocab_size`, or it is an error, as
// is what is not supported.
absl::StatusOr<PostProcessor> ReadPostProcessor(const nlohmann::json* json,
                                                const std::string& place, int32_t vocab_size);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_POST_PROCESSOR_H_
