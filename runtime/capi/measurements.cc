// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/measurements.h"

#include <algorithm>
#include <cmath>

#include "runtime/capi/error.h"

namespace plumb::capi {
namespace {

int32_t GetKind(ObservedTensor::Kind kind) {
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

plumb_probe ToProbe(int32_t kind, const std::string& name, const TensorStats& stats) {
  plumb_probe probe = {};
  probe.struct_size = sizeof(probe);
  probe.kind = kind;
  probe.name = name.c_str();
  probe.rms = stats.Rms();
  probe.max = static_cast<double>(stats.max_abs);
  probe.mean = stats.Mean();
  probe.norm = std::sqrt(stats.sum_squares);
  probe.nonfinite = stats.nonfinite;
  probe.elements = stats.count + stats.nonfinite;
  probe.dtype = PLUMB_DTYPE_F32;
  std::fill_n(probe.shape, 4, 1);
  return probe;
}

plumb_probe ToProbe(const ObservedTensor& seen, int64_t step) {
  plumb_probe probe = ToProbe(GetKind(seen.kind), *seen.name, seen.stats);
  probe.step = step;
  probe.dtype = seen.type.dtype == DType::kBF16 ? PLUMB_DTYPE_BF16 : PLUMB_DTYPE_F32;
  probe.rank = seen.type.shape.rank();
  for (int32_t d = 0; d < probe.rank; ++d) probe.shape[d] = seen.type.shape[d];
  probe.data = seen.data;
  return probe;
}

StepProfile* ProfileRows::Start() {
  profile_ = std::make_unique<StepProfile>();
  return profile_.get();
}

int64_t ProfileRows::Write(plumb_profile_row* rows, int64_t capacity) {
  if (profile_ == nullptr) return 0;
  rows_ = profile_->Rows();
  return WriteList(
      rows_.size() + 1, [this](size_t i) { return MakeRow(i); }, rows, capacity);
}

plumb_profile_row ProfileRows::MakeRow(size_t i) const {
  plumb_profile_row given = {};
  if (i == 0) {
    given.name = "step";
    given.runs = profile_->steps();
    given.seconds = profile_->seconds();
  } else {
    const StepProfile::Row& of = rows_[i - 1];
    given.name = of.name.c_str();
    given.in_graph = of.in_graph ? 1 : 0;
    given.runs = of.runs;
    given.seconds = of.seconds;
    given.flops = of.flops;
    given.bytes = of.bytes;
  }
  return given;
}

}  // namespace plumb::capi
