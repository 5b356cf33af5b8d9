// SPDX-License-Identifier: Apache-2.0
// RunStore: a directory of finished runs that studies share, so that each run is trained once. A
// run is stored under the hash of the identity that it was trained with (RunIdentity), with the
// hashes of its files. Opening a store reads no run, however many it has. Several processes may use
// one store: a run appears in it whole, by a rename, and does not change afterwards. A damaged
// entry is reported, removed and trained again.
#ifndef PLUMB_RUNTIME_STUDY_RUN_STORE_H_
#define PLUMB_RUNTIME_STUDY_RUN_STORE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class RunStore {
 public:
  // Opens the store in `directory`, creates it if necessary, and removes what killed processes left
  // in it. Errors: kInvalidArgument if the directory has files and is no store; failures of the
  // file system.
  static absl::StatusOr<RunStore> Open(const std::string& directory);

  // Copies the run of this hash to the directory `run`, which is replaced. Returns false if the
  // store has no such run. Errors: kDataLoss, with the reason, for an entry that is damaged or
  // another run; the entry is removed. Failures of the file system.
  absl::StatusOr<bool> Fetch(absl::string_view hash, const std::string& run) const;
  // Copies a finished run into the store, unless it has it. Does nothing for a run whose identity
  // is not recorded or not known.
  absl::Status Put(const std::string& run) const;

 private:
  explicit RunStore(std::string directory) : directory_(std::move(directory)) {}
  std::string GetPath(absl::string_view hash) const;
  std::string IncomingDirectory() const;
  absl::Status RemoveRemains() const;
  // Moves an entry out of the way and deletes it.
  absl::Status Remove(const std::string& entry) const;

  std::string directory_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_RUN_STORE_H_
