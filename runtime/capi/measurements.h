// SPDX-License-Identifier: Apache-2.0
// Profiles and probes of a session as plumb.h returns them. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_
#define PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plumb.h"
#include "runtime/session/probe.h"
#include "runtime/session/step_profile.h"

namespace plumb::capi {

// A profile of steps, row by row. Thread-compatible.
class ProfileRows {
 public:
  // Starts a new profile, to which a session adds, and drops the previous one.
  StepProfile* Start();

  // Writes the rows up to now, whose names live until the next call, as WriteList does; none before
  // Start.
  int64_t Write(plumb_profile_row* rows, int64_t capacity);

 private:
  plumb_profile_row MakeRow(size_t i) const;  // row 0 is the total

  std::unique_ptr<StepProfile> profile_;  // null: never started
  std::vector<StepProfile::Row> rows_;    // without the total
};

// Returns statistics without a step, shape or data. `name` must outlive them.
plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats);
// Returns an observed tensor with its statistics; its strings live as long as `seen`.
plumb_probe ToProbe(const ObservedTensor& seen, int64_t step);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_MEASUREMENTS_H_
