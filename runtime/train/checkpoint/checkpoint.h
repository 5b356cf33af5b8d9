// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: directories that are either complete or absent.
//
//   RUN/latest                                  "step-000500\n": the checkpoint to resume from
//   RUN/last_good                               likewise: the checkpoint that is never deleted
//   RUN/checkpoints/step-000500/model.safetensors
//                               optimizer.safetensors     absent if there is no optimizer state
//                               state.json
//   RUN/checkpoints/.tmp-*                      being written or deleted; removed by the next write
//
// A checkpoint is written and synced under a temporary name, renamed, and only then named in
// `latest`. Whenever the machine stops, `latest` names a complete checkpoint, and every step-* is
// complete.
//
// state.json: {"format": "plumb-checkpoint", "version": 1, "step": 500,
//   "files": {"model.safetensors": {"bytes": N, "hash": "16 hex digits"}, ...},
//   "state": {the caller's object}, "hash": "16 hex digits"}
// Hashes are ContentHash (hash.h). The last one covers this JSON without itself, names sorted, no
// white space. Truncated or changed files are detected when they are read.
//
// Stateless functions. Only one process at a time may write to a run directory.
#ifndef PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_H_
#define PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/client/plumb_api.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

struct CheckpointContents {
  int64_t step = 0;        // number of completed optimizer steps
  int64_t last_good = -1;  // step of the checkpoint to keep and to name in last_good; -1: none
  absl::Span<const TensorToWrite> model;
  absl::Span<const TensorToWrite> optimizer;    // may be empty
  std::string state = "{}";                     // a JSON object defined by the caller
  std::map<std::string, std::string> metadata;  // for both safetensors files
};

// Writes RUN/checkpoints/step-<step>, replacing an older one of the same step, and makes it the
// latest. Then deletes the checkpoints up to this step except the newest `keep` and last_good; keep
// 0 deletes none. Errors: InvalidArgument if `state` is no JSON object or a tensor has an invalid
// name. If only deleting fails, the checkpoint is complete and the message says so.
absl::Status WriteCheckpoint(const std::string& run_dir, const CheckpointContents& contents,
                             int keep);

// Removes all checkpoints of a run. If the process is killed meanwhile, the run is resumed from its
// beginning, or FindLatestCheckpoint or ReadCheckpoint fails with DataLoss.
absl::Status RemoveCheckpoints(const std::string& run_dir);

// Returns RUN/checkpoints/step-<step>.
std::string CheckpointPath(const std::string& run_dir, int64_t step);

// Returns the directory named in `latest`. Without `latest` (the machine stopped right after the
// first checkpoint) returns the checkpoint of the highest step. Errors: NotFound if there is none;
// DataLoss, with the existing ones, if `latest` names a checkpoint that does not exist.
absl::StatusOr<std::string> FindLatestCheckpoint(const std::string& run_dir);

// Content of state.json. A value.
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

// Reads state.json of `directory`. Errors: DataLoss if it is missing, truncated or changed.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory);

// Opens one of the files after checking its size and hash. Errors: DataLoss with the file and the
// difference.
absl::StatusOr<SafetensorsFile> OpenCheckpointModel(const Checkpoint& checkpoint);
// Errors: also NotFound if the checkpoint was written without an optimizer.
absl::StatusOr<SafetensorsFile> OpenCheckpointOptimizer(const Checkpoint& checkpoint);

// Returns the tensors of a state. Data is not copied: `trainer` must outlive them.
std::vector<TensorToWrite> StateTensors(api::Trainer* trainer, api::State state);

// Copies all tensors of a state from a file that has no others. Errors: a list of all missing,
// surplus and misshapen tensors; nothing is copied in this case.
absl::Status ReadState(const SafetensorsFile& file, api::Trainer* trainer, api::State state);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_H_
