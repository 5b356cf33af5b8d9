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

  // Computes the rows up to now, whose names live until the next call, and returns their number; 0
  // before Start.
  int64_t Count();
  // Returns row `i` of those that Count has computed in *row; row 0 is the total. Errors:
  // kOutOfRange.
  absl::Status WriteRow(int64_t i, plumb_profile_row* row) const;

 private:
  std::unique_ptr<StepProfile> profile_;  // null: never started
  bool has_rows_ = false;
  std::vector<StepProfile::Row> rows_;  // without the total
};

// Returns statistics without a step, shape or data. `name` must outlive them.
plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats);
// Returns an observed tensor with its statistics; its strings live as long as `seen`.
plumb_probe ToProbe(const ObservedTensor& seen, int64_t step);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_
