// SPDX-License-Identifier: Apache-2.0
// Text to time training with. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_BENCH_BENCH_TEXT_H_
#define PLUMB_RUNTIME_APP_BENCH_BENCH_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plumb {

// At least `tokens` characters in random order, of exactly `vocab_size` different ones: a tokenizer
// of characters makes a vocabulary of that size of it, and tokens that are spread over all of it.
// kInvalidArgument for more characters than Unicode has.
absl::StatusOr<std::string> RandomText(int64_t vocab_size, int64_t tokens, uint64_t seed);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_BENCH_BENCH_TEXT_H_
