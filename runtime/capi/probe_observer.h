// SPDX-License-Identifier: Apache-2.0
// What a probe sees, as plumb.h has it. Private to runtime/capi.
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

// The figures of a tensor that is not there: of no step, without a shape and data. `name` must
// outlive them.
plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats);
// The texts live as long as `seen`.
plumb_probe ToProbe(const ObservedTensor& seen, int64_t step);

// A host's names of points. kInvalidArgument for NULL.
absl::StatusOr<std::vector<std::string>> ProbeGlobs(const char* const* points, size_t count);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_PROBE_OBSERVER_H_
