// SPDX-License-Identifier: Apache-2.0
// Conversion of probes to the types of plumb.h. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_PROBE_OBSERVER_H_
#define PLUMB_RUNTIME_CAPI_PROBE_OBSERVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/session/probe.h"

namespace plumb::capi {

// Returns statistics without a step, shape or data. `name` must outlive them.
plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats);
// Returns an observed tensor with its statistics; its strings live as long as `seen`.
plumb_probe ToProbe(const ObservedTensor& seen, int64_t step);

// Copies a host's names of points. Fails with kInvalidArgument for NULL.
absl::StatusOr<std::vector<std::string>> ProbeGlobs(const char* const* points, size_t count);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_PROBE_OBSERVER_H_
