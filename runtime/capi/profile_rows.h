// SPDX-License-Identifier: Apache-2.0
// ProfileRows: where the time of steps goes, as plumb.h tells it, row by row. Thread-compatible.
// Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_PROFILE_ROWS_H_
#define PLUMB_RUNTIME_CAPI_PROFILE_ROWS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "plumb.h"
#include "runtime/session/step_profile.h"

namespace plumb::capi {

class ProfileRows {
 public:
  // A new profile, for a session to add to; it replaces the one before.
  StepProfile* Start();

  // Row 0 is of the steps as a whole; with it the others are taken anew, and names live until then.
  // kOutOfRange beyond the last; kFailedPrecondition before Start.
  absl::Status Give(size_t i, plumb_profile_row* row);

 private:
  std::unique_ptr<StepProfile> profile_;  // null: none was wanted
  std::vector<StepProfile::Row> rows_;
};

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_PROFILE_ROWS_H_
