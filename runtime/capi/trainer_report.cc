// SPDX-License-Identifier: Apache-2.0
// Probes and profiles of a trainer's steps.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/measurements.h"
#include "runtime/capi/trainer_handle.h"

namespace plumb::capi {
namespace {

// Returns an observer that calls `report`, which may end the call.
ProbeObserver MakeObserver(plumb_trainer* trainer, plumb_probe_fn report, void* user) {
  if (report == nullptr) return nullptr;
  return [=](const ObservedTensor& seen) {
    const plumb_probe probe = ToProbe(seen, trainer->session->step() + 1);
    if (report(user, &probe) != 0) trainer->probe_stops = true;
  };
}

size_t CountPoints(const ProbeResult& result) {
  return result.activations.size() + result.gradients.size() + 2 * result.parameters.size();
}

// Returns the statistics of point `i`: activations, then their gradients, then each parameter and
// its gradient. Requires: i < CountPoints().
plumb_probe MakeFigure(const ProbeResult& result, size_t i) {
  if (i < result.activations.size()) {
    return ToProbe(PLUMB_PROBE_ACTIVATION, result.activations[i].name, result.activations[i].stats);
  }
  i -= result.activations.size();
  if (i < result.gradients.size()) {
    return ToProbe(PLUMB_PROBE_GRADIENT, result.gradients[i].name, result.gradients[i].stats);
  }
  i -= result.gradients.size();
  const ProbeResult::Parameter& parameter = result.parameters[i / 2];
  return i % 2 == 0 ? ToProbe(PLUMB_PROBE_PARAMETER, parameter.name, parameter.value)
                    : ToProbe(PLUMB_PROBE_PARAMETER_GRADIENT, parameter.name, parameter.gradient);
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;

plumb_status plumb_trainer_probe(plumb_trainer* trainer, int64_t every, const char* const* points,
                                 int64_t count, plumb_probe_fn probe, void* user,
                                 plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> globs,
                           plumb::capi::ToList<std::string>("points", points, count));
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    return trainer->session->SetProbe(every, globs,
                                      plumb::capi::MakeObserver(trainer, probe, user));
  });
}

int64_t plumb_trainer_probe_count(const plumb_trainer* trainer) {
  const plumb::ProbeResult* const result = trainer == nullptr ? nullptr : trainer->session->probe();
  return result == nullptr ? 0 : static_cast<int64_t>(plumb::capi::CountPoints(*result));
}

plumb_status plumb_trainer_get_probe(const plumb_trainer* trainer, int64_t i, plumb_probe* probe,
                                     plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    const int64_t count = plumb_trainer_probe_count(trainer);
    if (i < 0 || i >= count) {
      return absl::OutOfRangeError(
          absl::StrCat("there is no point ", i, ": the last step has ", count));
    }
    const plumb::ProbeResult& result = *trainer->session->probe();
    plumb_probe figures = plumb::capi::MakeFigure(result, static_cast<size_t>(i));
    figures.step = result.step;
    return plumb::capi::CopyOut(figures, "probe", probe);
  });
}

plumb_status plumb_trainer_profile(plumb_trainer* trainer, int32_t on, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    trainer->session->SetProfile(on != 0 ? trainer->profile.Start() : nullptr);
    return absl::OkStatus();
  });
}

int64_t plumb_trainer_profile_count(plumb_trainer* trainer) {
  return trainer == nullptr || trainer->busy ? 0 : trainer->profile.Count();
}

plumb_status plumb_trainer_profile_row(plumb_trainer* trainer, int64_t i, plumb_profile_row* row,
                                       plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    return trainer->profile.WriteRow(i, row);
  });
}
