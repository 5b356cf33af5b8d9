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

// Returns an observer that calls `report`, which may end the run.
ProbeObserver MakeObserver(plumb_trainer* trainer, plumb_probe_fn report, void* user) {
  if (report == nullptr) return nullptr;
  return [=](const ObservedTensor& seen) {
    const plumb_probe probe = ToProbe(seen, trainer->session->step() + 1);
    if (report(user, &probe) != 0) trainer->cancelled = true;
  };
}

// Returns the statistics of point `i`: activations, then their gradients, then each parameter and
// its gradient.
absl::StatusOr<plumb_probe> MakeFigure(const ProbeResult& result, size_t i) {
  size_t at = i;
  if (at < result.activations.size()) {
    return ToProbe(PLUMB_PROBE_ACTIVATION, result.activations[at].name,
                   result.activations[at].stats);
  }
  at -= result.activations.size();
  if (at < result.gradients.size()) {
    return ToProbe(PLUMB_PROBE_GRADIENT, result.gradients[at].name, result.gradients[at].stats);
  }
  at -= result.gradients.size();
  if (at / 2 >= result.parameters.size()) {
    return absl::OutOfRangeError(absl::StrCat(
        "there is no point ", i, ": the step has ",
        result.activations.size() + result.gradients.size() + 2 * result.parameters.size()));
  }
  const ProbeResult::Parameter& parameter = result.parameters[at / 2];
  return at % 2 == 0 ? ToProbe(PLUMB_PROBE_PARAMETER, parameter.name, parameter.value)
                     : ToProbe(PLUMB_PROBE_PARAMETER_GRADIENT, parameter.name, parameter.gradient);
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;

plumb_status plumb_trainer_probe(plumb_trainer* trainer, int64_t every, const char* const* points,
                                 size_t count, plumb_probe_fn probe, void* user,
                                 plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> globs,
                           plumb::capi::ProbeGlobs(points, count));
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    return trainer->session->SetProbe(every, globs,
                                      plumb::capi::MakeObserver(trainer, probe, user));
  });
}

plumb_status plumb_trainer_get_probe(const plumb_trainer* trainer, size_t i, plumb_probe* probe,
                                     plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    const plumb::ProbeResult* const result = trainer->session->probe();
    if (result == nullptr) return absl::OutOfRangeError("the last step was not probed");
    PLUMB_ASSIGN_OR_RETURN(plumb_probe figures, plumb::capi::MakeFigure(*result, i));
    figures.step = result->step;
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

plumb_status plumb_trainer_profile_row(plumb_trainer* trainer, size_t i, plumb_profile_row* row,
                                       plumb_error** error) {
  return Call(trainer, "trainer", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(trainer->busy, "trainer"));
    return trainer->profile.WriteRow(i, row);
  });
}
