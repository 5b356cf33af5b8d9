// SPDX-License-Identifier: Apache-2.0
// ProfileRows: a profile of steps, row by row, as plumb.h returns it. Thread-compatible. Private to
// runtime/capi.
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
  // Starts a new profile, to which a session adds, and drops the previous one.
  StepProfile* Start();

  // Returns row `i` in *row. Row 0 is the total; reading it computes the other rows again, and
  // names live until then. Errors: kOutOfRange beyond the last row; kFailedPrecondition before
  // Start.
  absl::Status WriteRow(size_t i, plumb_profile_row* row);

 private:
  std::unique_ptr<StepProfile> profile_;  // null: never started
  std::vector<StepProfile::Row> rows_;
};

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_PROFILE_ROWS_H_
