// SPDX-License-Identifier: Apache-2.0
// CheckpointWriters: the files of one checkpoint, written by all ranks of a job into the same
// directory, each what it has of the tensors; the same bytes, and the same hash, as of one process.
// All ranks make one for a checkpoint: rank 0 calls Begin, then, if all see the directory, Write
// for each file, then End; the others Follow. Thread-compatible.
#ifndef PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_WRITERS_H_
#define PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_WRITERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/plumb_api.h"
#include "runtime/formats/hash.h"
#include "runtime/formats/safetensors.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

class CheckpointWriters {
 public:
  // `run_dir`: the run directory as this rank calls it. `weights`: of the trainer's model; the
  // norms' buffers behind them are rank 0's. What several ranks have must be equal.
  CheckpointWriters(Communicator* ranks, api::Trainer* trainer, std::string run_dir,
                    size_t weights);

  // The first rank that does not see the directory `staged` in checkpoints/ as rank 0 does, or -1:
  // then the others Follow until End.
  absl::StatusOr<int> Begin(const std::string& staged);
  // Writes a file of StateTensors(trainer, state) into it, and syncs it on all ranks. Gives the
  // hash of its content. An error of any rank, with rank and host.
  absl::StatusOr<uint64_t> Write(absl::string_view name, api::State state,
                                 const SafetensorsImage& image);
  absl::Status End();

  // Of the other ranks. Errors of messages; those of files rank 0 has.
  absl::Status Follow();

 private:
  struct Order;
  absl::StatusOr<std::vector<int>> ShareOut(api::State state,
                                            const std::vector<TensorToWrite>& tensors);
  absl::StatusOr<uint64_t> WriteParts(const Order& order, const std::string& name,
                                      absl::string_view header);
  absl::Status HashInOrder(const std::vector<TensorToWrite>& tensors,
                           const std::vector<int>& writers, ContentHasher* hasher);

  Communicator* const ranks_;
  api::Trainer* const trainer_;
  const std::string run_dir_;
  const size_t weights_;
  std::string staged_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_CHECKPOINT_CHECKPOINT_WRITERS_H_
