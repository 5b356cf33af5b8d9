// SPDX-License-Identifier: Apache-2.0
// CheckpointWriters: lets all ranks of a job write the files of one checkpoint into the same
// directory, each rank its part of the tensors. The files have the same bytes and hash as if one
// process wrote them. All ranks create one per checkpoint. Rank 0 calls Begin, then Write for each
// file if all ranks see the directory, then End; the other ranks call Follow. Thread-compatible.
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
  // `run_dir` is the path of the run directory on this rank. `weights` is the number of weights of
  // the trainer's model; norm buffers follow them and are written by rank 0. Requires: tensors that
  // several ranks have are equal.
  CheckpointWriters(Communicator* ranks, api::Trainer* trainer, std::string run_dir,
                    size_t weights);

  // Creates a token file to test if all ranks see the directory `staged` in checkpoints/. Returns
  // the first rank that does not, whereupon Follow returns on the other ranks, or -1: then they
  // follow until End.
  absl::StatusOr<int> Begin(const std::string& staged);
  // Writes a file of StateTensors(trainer, state) and syncs it on all ranks. Returns the hash of
  // its content. Errors: the error of any rank, with rank and host.
  absl::StatusOr<uint64_t> Write(absl::string_view name, api::State state,
                                 const SafetensorsImage& image);
  absl::Status End();

  // Runs a rank other than 0 until rank 0 calls End. Errors: only those of messages; rank 0 returns
  // those of files.
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
