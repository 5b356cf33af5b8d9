// SPDX-License-Identifier: Apache-2.0
// RunStore: a directory of finished runs that studies share. A run is stored under the hash of its
// key, the text of everything that determines it, so that each run is trained once. Opening a store
// reads nothing, however many runs it has. Several processes may use one store: a run appears in it
// whole, by a rename, and does not change afterwards.
#ifndef PLUMB_RUNTIME_APP_STUDY_RUN_STORE_H_
#define PLUMB_RUNTIME_APP_STUDY_RUN_STORE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class RunStore {
 public:
  // Opens the store in `directory`, and creates it if necessary. Errors: kInvalidArgument if the
  // directory has files and is no store.
  static absl::StatusOr<RunStore> Open(const std::string& directory);

  bool Has(absl::string_view hash) const;
  // Copies a run of the store to the directory `run`, which is replaced. Requires: Has(hash).
  absl::Status Fetch(absl::string_view hash, const std::string& run) const;
  // Copies a finished run into the store, unless it has it.
  absl::Status Put(absl::string_view hash, const std::string& run) const;

 private:
  explicit RunStore(std::string directory) : directory_(std::move(directory)) {}
  std::string PathOf(absl::string_view hash) const;

  std::string directory_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_RUN_STORE_H_
