// SPDX-License-Identifier: Apache-2.0
// Token ids as files, and what a model computes for them: to compare other implementations with.
#ifndef PLUMB_CLI_EVAL_TOKENS_H_
#define PLUMB_CLI_EVAL_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/model.h"

namespace plumb::cli {

// A JSON file: a list of sequences of token ids, or an object of such lists, {"sequences": [[..]],
// "targets": [[..]], "token_types": [[..]]}, the latter two as one wants. A target that is null or
// -100 is none. Errors name the file, the place and the mistake.
absl::StatusOr<TokenBatch> ReadTokens(const std::string& path);

// A JSON file: a list of token ids, or several. None of them is empty.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadPrompts(const std::string& path);

// Writes {"loss": .., "grad_l2": {name: ..}}; numbers are the shortest that read back as the same
// double.
absl::Status WriteGradientNorms(const ModelOutputs& outputs, const std::string& path);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EVAL_TOKENS_H_
