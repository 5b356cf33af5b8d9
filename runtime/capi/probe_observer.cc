#include "runtime/capi/probe_observer.h"

#include <algorithm>

#include "runtime/base/status.h"
#include "runtime/capi/error.h"

namespace plumb::capi {
namespace {

int32_t KindOf(ObservedTensor::Kind kind) {
  switch (kind) {
    case ObservedTensor::Kind::kActivation:
      return PLUMB_PROBE_ACTIVATION;
    case ObservedTensor::Kind::kGradient:
      return PLUMB_PROBE_GRADIENT;
    case ObservedTensor::Kind::kParameter:
      return PLUMB_PROBE_PARAMETER;
    case ObservedTensor::Kind::kParameterGradient:
      break;
  }
  return PLUMB_PROBE_PARAMETER_GRADIENT;
}

}  // namespace

plumb_probe ToProbe(const ObservedTensor& seen, int64_t step) {
  plumb_probe probe = {};
  probe.struct_size = sizeof(probe);
  probe.step = step;
  probe.kind = KindOf(seen.kind);
  probe.name = seen.name->c_str();
  probe.rms = seen.stats.Rms();
  probe.max = static_cast<double>(seen.stats.max_abs);
  probe.mean = seen.stats.Mean();
  probe.nonfinite = seen.stats.nonfinite;
  probe.elements = seen.type.num_elements();
  probe.dtype = seen.type.dtype == DType::kBF16 ? PLUMB_BF16 : PLUMB_F32;
  probe.rank = seen.type.shape.rank();
  std::fill_n(probe.shape, 4, 1);
  for (int32_t d = 0; d < probe.rank; ++d) probe.shape[d] = seen.type.shape[d];
  probe.data = seen.data;
  return probe;
}

absl::StatusOr<std::vector<std::string>> ProbeGlobs(const char* const* points, size_t count) {
  if (points == nullptr && count > 0) return NullArgument("points");
  PLUMB_RETURN_IF_ERROR(CheckSize("count", count));
  std::vector<std::string> globs;
  for (size_t i = 0; i < count; ++i) {
    if (points[i] == nullptr) return NullArgument("points[i]");
    globs.emplace_back(points[i]);
  }
  return globs;
}

}  // namespace plumb::capi
