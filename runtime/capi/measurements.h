// SPDX-License-Identifier: Apache-2.0
// Profiles and probes of a session as plumb.h returns them. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_
#define PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/session/probe.h"
#include "runtime/session/step_profile.h"

namespace plumb::capi {

// A profile of steps, row by row. Thread-compatible.
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

// Returns statistics without a step, shape or data. `name` must outlive them.
plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats);
// Returns an observed tensor with its statistics; its strings live as long as `seen`.
plumb_probe ToProbe(const ObservedTensor& seen, int64_t step);

// Copies a host's names of points. Fails with kInvalidArgument for NULL.
absl::StatusOr<std::vector<std::string>> ProbeGlobs(const char* const* points, size_t count);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_
