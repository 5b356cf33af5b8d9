// SPDX-License-Identifier: Apache-2.0
// Import of other programs' checkpoints as runs. The mapping is data: a family
// (docs/zoo.md) that is shipped or is a file of the user's. Stateless.
//
// An imported run contains model.pbtxt, import.json (the mapping of tensors), unchanged copies of
// the tokenizer's files and generation_config.json, and weights.safetensors with the weights that
// needed another layout. All other weights stay in the checkpoint.
#ifndef PLUMB_RUNTIME_CONVERT_IMPORT_RUN_H_
#define PLUMB_RUNTIME_CONVERT_IMPORT_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"

namespace plumb {

struct ImportRequest {
  std::string directory;    // with config.json, and model.safetensors or shards and an index
  std::string out;          // path of the run; new, or an empty directory
  std::string family_file;  // "": the shipped family that fits config.json
  std::string adapter;      // directory of a PEFT adapter to merge into the weights; "": none
  bool copy = false;  // copies all weights into the run, which then no longer needs the checkpoint
  std::vector<std::string> allow_unread;  // keys of config.json to import without reading
};

struct ImportReport {
  std::string family;
  std::string family_file;
  int64_t parameters = 0;
  int64_t tensors = 0;                          // in plumb
  int64_t mapped_bytes = 0, written_bytes = 0;  // weights left in the checkpoint, weights converted
  std::vector<std::string> ignored;             // ignored tensors of the checkpoint
  std::vector<std::string> dtypes;              // types of the checkpoint's weights: "F32"
  std::vector<int32_t> end_tokens;              // tokens at which generation stops
  std::string end_tokens_from;  // "generation_config.json"; "": guessed from the special tokens
};

// Writes the run completely or not at all. Warns (HostRuntime::TakeWarnings) about keys of
// config.json that no family knows and about weights that are not finite. Errors: kInvalidArgument
// for what the family rejects or cannot read, all at once if possible; kDataLoss for a damaged
// file; kNotFound; kAlreadyExists if `out` is not empty.
absl::StatusOr<ImportReport> ImportCheckpoint(HostRuntime* runtime, const ImportRequest& request);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_IMPORT_RUN_H_
