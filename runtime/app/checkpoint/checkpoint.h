// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run, as directories that are whole or not there.
//
//   RUN/latest                                  "step-000500\n": the checkpoint to resume from
//   RUN/last_good                               the same of the one that is never deleted
//   RUN/checkpoints/step-000500/model.safetensors
//                               optimizer.safetensors     absent when there was none to write
//                               state.json
//   RUN/checkpoints/.tmp-*                      being written or deleted; removed by the next write
//
// A checkpoint is written and synced under a temporary name, renamed, and only then named in
// `latest`: whenever the machine stops, `latest` names a whole one, and so is every step-*.
//
// state.json: {"format": "plumb-checkpoint", "version": 1, "step": 500,
//   "files": {"model.safetensors": {"bytes": N, "hash": "16 hex digits"}, ...},
//   "state": {the caller's object}, "hash": "16 hex digits"}
// Hashes are ContentHash (hash.h): of a file's bytes, and for the last one of this JSON without it,
// names sorted, no white space. Truncated or changed files are detected when they are read.
//
// One process at a time writes to a run directory. Functions without state.
#ifndef PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_H_
#define PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

// Writes a file of tensors at JoinPath(directory, name), durably; gives the hash of its content.
using TensorFileWriter = absl::FunctionRef<absl::StatusOr<uint64_t>(
    const std::string& directory, const char* name, const SafetensorsImage& image)>;
// As this process does alone.
absl::StatusOr<uint64_t> WriteTensorFile(const std::string& directory, const char* name,
                                         const SafetensorsImage& image);

struct CheckpointContents {
  int64_t step = 0;        // optimizer steps done
  int64_t last_good = -1;  // the step of the checkpoint to keep and to name in last_good; -1: none
  absl::Span<const TensorToWrite> model;
  absl::Span<const TensorToWrite> optimizer;    // may be empty
  std::string state = "{}";                     // a JSON object of the caller's
  std::map<std::string, std::string> metadata;  // of both safetensors files
  // Calls `write`, which writes all files into `directory`, before the checkpoint has its name; its
  // error is that of the checkpoint. null: it is called with WriteTensorFile.
  using Write = absl::FunctionRef<absl::Status(TensorFileWriter)>;
  std::function<absl::Status(const std::string& directory, Write write)> around;
};

// Writes RUN/checkpoints/step-<step> (over an older one of the same step), makes it the latest,
// then deletes all but the newest `keep` of the checkpoints up to this step, and last_good; keep 0
// deletes none.
// An error while deleting is an error, but the checkpoint is written then and the message says so.
// InvalidArgument when `state` is no JSON object or a tensor's name is impossible.
absl::Status WriteCheckpoint(const std::string& run_dir, const CheckpointContents& contents,
                             int keep);

// RUN/checkpoints/step-<step>.
std::string CheckpointPath(const std::string& run_dir, int64_t step);

// Deletes the checkpoints of later steps: those of a run that went back to this one.
absl::Status RemoveCheckpointsAfter(const std::string& run_dir, int64_t step);

// The directory that `latest` names. Without a `latest` (the machine stopped between the first
// checkpoint and it) the checkpoint of the highest step. NotFound when there is none; DataLoss when
// `latest` names something that is not there, listing what is.
absl::StatusOr<std::string> FindLatestCheckpoint(const std::string& run_dir);

// What state.json says. A value.
struct Checkpoint {
  struct File {
    int64_t bytes = 0;
    uint64_t hash = 0;
  };

  std::string directory;
  int64_t step = 0;
  std::string state;  // the caller's object, names sorted
  std::map<std::string, File> files;
};

// Reads `directory`'s state.json. DataLoss when it is missing, cut or changed.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory);

// Opens one of the files after checking its size and hash. DataLoss naming the file and what
// differs.
absl::StatusOr<SafetensorsFile> OpenCheckpointModel(const Checkpoint& checkpoint);
// NotFound when the checkpoint was written without an optimizer.
absl::StatusOr<SafetensorsFile> OpenCheckpointOptimizer(const Checkpoint& checkpoint);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_H_
