// The outputs of a model for given tokens, as files to compare other implementations with.
#ifndef PLUMB_CLI_EVAL_TOKENS_H_
#define PLUMB_CLI_EVAL_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tools/model.h"

namespace plumb::cli {

// A JSON file [batch][seq] of token ids. Errors name the file, the place and the mistake.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadTokens(const std::string& path);

// Writes {"loss": .., "grad_l2": {name: ..}}; numbers are the shortest that read back as the same
// double.
absl::Status WriteGradients(const Model::Outputs& outputs, const std::string& path);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_EVAL_TOKENS_H_
