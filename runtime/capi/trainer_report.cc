// SPDX-License-Identifier: Apache-2.0
// Probes and profiles of a trainer's steps.
#include <string>
#include <utility>

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
    const InCall in_pass(&trainer->in_pass);
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

int64_t plumb_trainer_probes(const plumb_trainer* trainer, plumb_probe* probes, int64_t capacity) {
  const plumb::ProbeResult* const result = trainer == nullptr ? nullptr : trainer->session->probe();
  if (result == nullptr || trainer->in_pass) return 0;
  const auto get = [result](size_t i) {
    plumb_probe figures = plumb::capi::MakeFigure(*result, i);
    figures.step = result->step;
    return figures;
  };
  return plumb::capi::WriteList(plumb::capi::CountPoints(*result), get, probes, capacity);
}

plumb_status plumb_trainer_profile(plumb_trainer* trainer, int32_t on, plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    trainer->session->SetProfile(on != 0 ? trainer->profile.Start() : nullptr);
    return absl::OkStatus();
  });
}

int64_t plumb_trainer_profile_rows(plumb_trainer* trainer, plumb_profile_row* rows,
                                   int64_t capacity) {
  return trainer == nullptr || trainer->busy ? 0 : trainer->profile.Write(rows, capacity);
}
