// SPDX-License-Identifier: Apache-2.0
// Files of token ids, and gradient norms computed for them, to compare with other implementations.
#ifndef PLUMB_CLI_EVAL_TOKENS_H_
#define PLUMB_CLI_EVAL_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"

namespace plumb::cli {

// Reads a JSON file: a list of sequences of token ids, or an object of such lists, {"sequences":
// [[..]], "targets": [[..]], "token_types": [[..]]}, of which the last two are optional. A target
// of null or -100 is ignored. Errors: name the file, the position and the problem.
absl::StatusOr<TokenBatch> ReadTokens(const std::string& path);

// Reads a JSON file: a list of token ids, or a list of such lists. None of them may be empty.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadPrompts(const std::string& path);

// Writes {"loss": .., "grad_l2": {name: ..}}, with the shortest numbers that parse to the same
// double.
absl::Status WriteGradientNorms(const ModelOutputs& outputs, const std::string& path);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EVAL_TOKENS_H_
