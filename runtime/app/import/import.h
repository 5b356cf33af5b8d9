// SPDX-License-Identifier: Apache-2.0
// Checkpoints of other programs as runs of plumb's, and back. The mapping is a family's
// (docs/zoo.md), which is data: shipped, or a file of the user's.
//
// An imported run holds model.pbtxt, import.json (which tensor of the checkpoint became what), the
// tokenizer's files and generation_config.json as they were, and weights.safetensors with what had
// to be laid out in another way; the other weights stay where they are, in the checkpoint.
#ifndef PLUMB_RUNTIME_APP_IMPORT_IMPORT_H_
#define PLUMB_RUNTIME_APP_IMPORT_IMPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"

namespace plumb {

struct ImportRequest {
  std::string directory;    // config.json, model.safetensors or shards and their index
  std::string out;          // of the run; new, or an empty directory
  std::string family_file;  // "": the shipped one that fits config.json
  bool copy = false;        // all weights into the run, so that the checkpoint may go
  std::vector<std::string> allow_unread;  // keys of config.json to import without
};

struct ImportReport {
  std::string family;
  std::string family_file;
  int64_t parameters = 0;
  int64_t tensors = 0;                          // of plumb's
  int64_t mapped_bytes = 0, written_bytes = 0;  // of weights: left in the checkpoint, laid out anew
  std::vector<std::string> ignored;             // tensors of the checkpoint
  std::vector<std::string> dtypes;              // of the checkpoint's weights: "F32"
  std::vector<int32_t> end_tokens;              // at which generation stops
  std::string end_tokens_from;  // "generation_config.json"; "": guessed among the special tokens
};

// Writes the run, whole or not at all. Warns (HostRuntime::TakeWarnings) of keys of config.json
// that no family knows and of weights that are not finite. Errors: what the family refuses, or
// cannot read, all at once where that is possible (kInvalidArgument), a damaged file (kDataLoss),
// no such file (kNotFound), a directory that is not empty (kAlreadyExists).
absl::StatusOr<ImportReport> ImportCheckpoint(HostRuntime* runtime, const ImportRequest& request);

struct ExportRequest {
  std::string run;          // imported or trained; or one of its checkpoints
  std::string out;          // new, or an empty directory
  std::string family;       // a name; "": that of import.json
  std::string family_file;  // over `family`
  bool average = false;     // of the weights (ema_decay)
};

struct ExportReport {
  std::string family;
  int64_t tensors = 0;  // of the checkpoint
  int64_t bytes = 0;    // of model.safetensors
};

// Writes config.json, generation_config.json, model.safetensors (f32) and the tokenizer's files,
// whole or not at all. kInvalidArgument with the reason where the family cannot express the model.
absl::StatusOr<ExportReport> ExportRun(HostRuntime* runtime, const ExportRequest& request);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_IMPORT_IMPORT_H_
